module hybridlab.test/bundle/windows-cni

go 1.18

require github.com/Microsoft/windows-container-networking v0.3.1
