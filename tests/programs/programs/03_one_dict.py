from servers.shop import get_order, create_order

# Read the old order
old = await get_order({'order_id': 'O-1003'})

# Create the same order again
new = await create_order({
    'customer': old['customer']['name'],
    'items': [{'sku': line['sku'], 'quantity': line['quantity']} for line in old['lines']],
    'note': f"Repeat of {old['id']}"
})

print(f"Created order {new['id']} for {new['customer']}: {new['total']:.2f} EUR")
