module hybridlab.test/bundle/runhcs

go 1.23.0

require github.com/Microsoft/hcsshim v0.14.1
