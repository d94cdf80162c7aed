"""What a batch did, what it cost, and what is not known about it: Markdown for chats, HTML for people."""
