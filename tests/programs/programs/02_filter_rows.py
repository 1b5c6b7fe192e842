from servers.shop import list_orders

# Get all rows (processed in the sandbox, not in context)
all_rows = await list_orders()

# Filter in the execution environment
pending_orders = [row for row in all_rows if row["status"] == "pending"]
print(f"Found {len(pending_orders)} pending orders")
print(pending_orders[:5])  # Only log the first 5 for review
