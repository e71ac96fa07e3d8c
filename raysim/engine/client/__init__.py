"""What a hospital does when it is called: local training, client programs and evaluation."""
