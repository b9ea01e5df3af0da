package hdfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	lib "github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"
	"github.com/hashicorp/go-hclog"
	krb "github.com/jcmturner/gokrb5/v8/client"
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"

	"github.com/tidemill/tidemill/internal/fsys"
)

// Config says which cluster, and how files are written there. Its zero value
// takes all but the addresses from the environment and the cluster.
type Config struct {
	// Addresses are host:port of the namenodes, the active one and others.
	Addresses []string
	// User is who owns the files.
	User string
	// Replication of new files; 0 is the cluster's default.
	Replication int
	// MinReplicas is how many datanodes must acknowledge. 0 is two, or as many
	// as Replication if that is less.
	MinReplicas int
	// BlockSize of new files in bytes; 0 is the cluster's default.
	BlockSize int64
	// CloseToCommit makes Flush close the file. It is set by itself where
	// datanodes are spoken to under SASL.
	CloseToCommit bool
	// Timeout bounds one call of the namenode, and one step of writing or
	// reading; 10 s if 0.
	Timeout time.Duration
	// Patience is how long calls are tried again while the namenode is away, in
	// safe mode or standby, or no datanode takes a new block, and how long
	// leases may take to recover; 5 min if 0.
	Patience time.Duration
	// Log is told of what takes long, and of files that were given up.
	Log hclog.Logger
	// Dial replaces the network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// options is what the Hadoop configuration says of security.
	options lib.ClientOptions
}

const (
	defaultPort     = "8020"
	defaultTimeout  = 10 * time.Second
	defaultPatience = 5 * time.Minute
)

// FromEnvironment fills in what c leaves open for the namenodes of authority, the
// part of a name between hdfs:// and the next slash: host:port, several of those
// with commas between, the name of a service in the Hadoop configuration, or
// nothing, which is the default file system there. The configuration is read from
// HADOOP_CONF_DIR or HADOOP_HOME/conf. The user is that of HADOOP_USER_NAME or
// the system's; with Kerberos it is that of the ticket cache in KRB5CCNAME.
func (c Config) FromEnvironment(authority string) (Config, error) {
	conf, err := hadoopconf.LoadFromEnvironment()
	if err != nil {
		return c, fmt.Errorf("hdfs://%s: Hadoop configuration: %w", authority, err)
	}
	for _, key := range defaultNames {
		if _, err := url.Parse(conf[key]); err != nil { // on which the library panics
			return c, fmt.Errorf("hdfs://%s: Hadoop configuration: %s: %w", authority, key, err)
		}
	}
	c.options = lib.ClientOptionsFromConf(conf)
	if len(c.Addresses) == 0 {
		if c.Addresses, err = addresses(conf, authority); err != nil {
			return c, err
		}
	}
	if c.User == "" {
		c.User = os.Getenv("HADOOP_USER_NAME")
	}
	if c.User == "" {
		u, err := user.Current()
		if err != nil {
			return c, fmt.Errorf("hdfs://%s: name of the user: %w; HADOOP_USER_NAME sets it", authority, err)
		}
		c.User = u.Username
	}
	if c.options.KerberosClient != nil {
		if c.options.KerberosClient, err = ticketCache(); err != nil {
			return c, fmt.Errorf("hdfs://%s: Kerberos: %w", authority, err)
		}
	}
	return c, nil
}

// defaultNames are the settings that name the default file system.
var defaultNames = []string{"fs.defaultFS", "fs.default.name"}

// addresses resolves an authority.
func addresses(conf hadoopconf.HadoopConf, authority string) ([]string, error) {
	if authority == "" {
		for _, key := range defaultNames {
			if u, err := url.Parse(conf[key]); err == nil && u.Scheme == "hdfs" && u.Host != "" {
				return addresses(conf, u.Host)
			}
		}
		return nil, errors.New("hdfs:///: no namenode is named: HADOOP_CONF_DIR has no fs.defaultFS that is one, give hdfs://host:port/path")
	}
	if ids := conf["dfs.ha.namenodes."+authority]; ids != "" {
		var all []string
		for id := range strings.SplitSeq(ids, ",") {
			key := "dfs.namenode.rpc-address." + authority + "." + strings.TrimSpace(id)
			if conf[key] == "" {
				return nil, fmt.Errorf("hdfs://%s: the Hadoop configuration names namenode %q and has no %s", authority, id, key)
			}
			all = append(all, conf[key])
		}
		return withPorts(all), nil
	}
	return withPorts(strings.Split(authority, ",")), nil
}

func withPorts(addresses []string) []string {
	out := make([]string, 0, len(addresses))
	for _, a := range addresses {
		a = strings.TrimSpace(a)
		if _, _, err := net.SplitHostPort(a); err != nil && a != "" {
			a = net.JoinHostPort(a, defaultPort)
		}
		out = append(out, a)
	}
	return out
}

// ticketCache logs in with the tickets that kinit got.
func ticketCache() (*krb.Client, error) {
	file := cmp.Or(os.Getenv("KRB5_CONFIG"), "/etc/krb5.conf")
	conf, err := krbconfig.Load(file)
	if err != nil {
		return nil, fmt.Errorf("configuration %q: %w", file, err)
	}
	name := os.Getenv("KRB5CCNAME")
	if kind, rest, ok := strings.Cut(name, ":"); ok {
		if kind != "FILE" {
			return nil, fmt.Errorf("KRB5CCNAME is %q: only caches in files can be read", name)
		}
		name = rest
	}
	if name == "" {
		name = fmt.Sprintf("/tmp/krb5cc_%d", os.Getuid())
	}
	cache, err := credentials.LoadCCache(name)
	if err != nil {
		return nil, fmt.Errorf("ticket cache %q: %w; kinit makes one", name, err)
	}
	return krb.NewFromCCache(cache, conf)
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Addresses) == 0 {
		return c, errors.New("hdfs: no namenode address")
	}
	for _, a := range c.Addresses {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return c, fmt.Errorf("hdfs: namenode address %q: must be host:port", a)
		}
	}
	switch {
	case c.User == "" && c.options.KerberosClient == nil:
		return c, errors.New("hdfs: no user name")
	case c.Replication < 0 || c.MinReplicas < 0:
		return c, fmt.Errorf("hdfs: replication %d, at least %d must acknowledge: must not be negative", c.Replication, c.MinReplicas)
	case c.Replication > 0 && c.MinReplicas > c.Replication:
		return c, fmt.Errorf("hdfs: at least %d datanodes must acknowledge: the replication is %d", c.MinReplicas, c.Replication)
	case c.BlockSize < 0:
		return c, fmt.Errorf("hdfs: block size %d: must not be negative", c.BlockSize)
	case c.Timeout < 0 || c.Patience < 0:
		return c, fmt.Errorf("hdfs: timeout %v, patience %v: must not be negative", c.Timeout, c.Patience)
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Patience = cmp.Or(c.Patience, defaultPatience)
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: c.Timeout, KeepAlive: 30 * time.Second}).DialContext
	}
	return c, nil
}

// Opener returns what opens the HDFS of an authority, for [fsys.NewRouter].
func Opener(cfg Config) func(authority string) (fsys.FS, error) {
	return func(authority string) (fsys.FS, error) {
		cfg, err := cfg.FromEnvironment(authority)
		if err != nil {
			return nil, err
		}
		return New(cfg)
	}
}
