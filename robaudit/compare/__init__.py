"""What has changed between two runs on the same samples, and how surely?"""
