"""What several test folders share: real servers and processes, never mocks."""
