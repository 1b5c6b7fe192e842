from servers.shop import create_order, update_order_status

order = await create_order("Ada Lovelace", [{"sku": "TY-01"}])
await update_order_status(order["id"], "shipped", status="shipped")
