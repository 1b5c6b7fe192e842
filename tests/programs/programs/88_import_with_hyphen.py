from servers.crm-tools import list_contacts

contacts = await list_contacts()
print(len(contacts))
