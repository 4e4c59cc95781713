module hybridlab.test/bundle/runc

go 1.25.0

require github.com/opencontainers/runc v1.5.2
