"""`chappe bench soak`: churn for a long time, and whether memory and every table level off."""
