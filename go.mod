module github.com/tidemill/tidemill

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // the hash of keys, lineage and content: fast, and the same everywhere
	github.com/colinmarc/hdfs/v2 v2.4.0 // HDFS: namenode and datanode protocols; internal/fsys/hdfs adds what it lacks
	github.com/google/go-cmp v0.7.0 // tests: readable differences
	github.com/hashicorp/go-hclog v1.6.3 // structured log lines through an injected logger
	github.com/jcmturner/gokrb5/v8 v8.4.4 // tickets for HDFS, which the library above takes in this form
	github.com/parquet-go/parquet-go v0.32.0 // SaveAsParquet: schemas, pages and encodings; Apache-2.0
	github.com/spf13/cobra v1.10.2 // the commands of cmd/tidemill: subcommands, flags and their help
	github.com/vmihailenco/msgpack/v5 v5.4.1 // records without a codec of their own, and messages between driver and executors
	go.uber.org/goleak v1.3.0 // tests: no goroutine is left behind
	golang.org/x/sync v0.25.0 // errgroup: bounded work side by side
	golang.org/x/sys v0.50.0 // rename that refuses to replace
	google.golang.org/protobuf v1.36.12 // messages and fields of HDFS that the library does not offer
	pgregory.net/rapid v1.3.0 // tests: state machines against oracles
)

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	github.com/andybalholm/brotli v1.1.1 // indirect
	github.com/fatih/color v1.13.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-uuid v1.0.3 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jcmturner/aescts/v2 v2.0.0 // indirect
	github.com/jcmturner/dnsutils/v2 v2.0.0 // indirect
	github.com/jcmturner/gofork v1.7.6 // indirect
	github.com/jcmturner/goidentity/v6 v6.0.1 // indirect
	github.com/jcmturner/rpc/v2 v2.0.3 // indirect
	github.com/klauspost/compress v1.17.9 // indirect
	github.com/mattn/go-colorable v0.1.12 // indirect
	github.com/mattn/go-isatty v0.0.14 // indirect
	github.com/parquet-go/bitpack v1.0.0 // indirect
	github.com/parquet-go/jsonlite v1.0.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.21 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/twpayne/go-geom v1.6.1 // indirect
	github.com/vmihailenco/tagparser/v2 v2.0.0 // indirect
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
	honnef.co/go/tools v0.8.2 // indirect
	mvdan.cc/gofumpt v0.12.0 // indirect
)

tool (
	honnef.co/go/tools/cmd/staticcheck
	mvdan.cc/gofumpt
)
