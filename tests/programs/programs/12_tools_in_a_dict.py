from servers.shop import count_orders, average_order_value, list_categories

# Map each metric to the tool that computes it
tools = {
    "orders": count_orders,
    "average": average_order_value,
    "categories": list_categories,
}

report = {}
for label, tool in tools.items():
    report[label] = await tool()

print(report)
