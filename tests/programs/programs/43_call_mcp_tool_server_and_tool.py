from client import call_mcp_tool

stock = await call_mcp_tool(
    server="shop",
    tool="stock_levels",
    input_data={"skus": ["BK-01", "TY-01"]},
)
print(stock)

note = await call_mcp_tool(server="crm-tools", tool="create-note", input_data={"contactId": "c-1", "body": "Stock checked"})
print(note)
