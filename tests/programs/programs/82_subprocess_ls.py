import subprocess

result = subprocess.run(["ls", "servers/shop"], capture_output=True, text=True)
print(result.stdout)
