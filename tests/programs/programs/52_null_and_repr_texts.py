from servers.crm_tools import last_activity, list_contacts, owner_stats

for contact in await list_contacts():
    activity = await last_activity(contact["id"])
    if activity is None:
        print(f"{contact['name']}: never contacted")
    else:
        print(f"{contact['name']}: {activity['summary']} ({activity['type']})")

stats = await owner_stats(owner="mia")
rate = stats["won"] / (stats["won"] + stats["open"])
print(f"Win rate {rate:.1%}, on target: {stats['on_target']}, lost: {stats['lost']}")
