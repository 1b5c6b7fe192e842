from servers import shop

order = await shop.create_order(customer="Ada Lovelace", items=[{"sku": "TY-01"}])
await shop.update_order_state(order["id"], "shipped")
