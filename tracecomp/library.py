ops = None
