import os,time
open('/dev/ttyS0','w').write('hello %s\n'%time.monotonic())
import spnego, paramiko
open('/dev/ttyS0','w').write('hello2 %s\n'%time.monotonic())
os.system('ls / /cd /c > /dev/ttyS0; mount >/dev/ttyS0')
while 1: time.sleep(100)
