# Chain multiple operations in one request
order = await shop.get_order(order_id="O-1001")
contacts = await crm_tools.list_contacts()
match = [c for c in contacts if c["email"] == order["customer"]["email"]]
return {"order": order["id"], "contact": match[0]["id"]}
