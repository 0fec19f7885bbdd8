"""Variables with managed quality: brokers that admit subscriptions, allocate paths, change modes and recover."""
