from client import call_mcp_tool

# Call any MCP tool
result = await call_mcp_tool(
    'mcp__shop__create_order',
    {'customer': 'Edith Clarke', 'items': [{'sku': 'HM-02', 'quantity': 1}]},
    dict
)
print(result['id'], result['status'])

orders = await call_mcp_tool('mcp__shop__list_orders', {'customer': 'Edith Clarke'}, type=list)
print([o['total'] for o in orders])

contacts = await call_mcp_tool('mcp__crm-tools__list_contacts', {'limit': 1})
print(contacts[0]['name'])
