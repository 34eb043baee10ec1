"""From a summary to text: functions without input or output of their own."""
