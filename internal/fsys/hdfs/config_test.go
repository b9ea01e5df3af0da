package hdfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hadoop writes a configuration with properties "name=value" and makes it that of
// the environment.
func hadoop(t *testing.T, properties ...string) {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("<configuration>")
	for _, p := range properties {
		name, value, _ := strings.Cut(p, "=")
		b.WriteString("<property><name>" + name + "</name><value>" + value + "</value></property>")
	}
	b.WriteString("</configuration>")
	if err := os.WriteFile(filepath.Join(dir, "hdfs-site.xml"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", dir)
	t.Setenv("HADOOP_USER_NAME", "tester")
}

func TestFromEnvironmentFindsNamenodes(t *testing.T) {
	service := []string{
		"fs.defaultFS=hdfs://tide", "dfs.nameservices=tide,ebb", "dfs.ha.namenodes.tide=a, b", "dfs.ha.namenodes.ebb=c",
		"dfs.namenode.rpc-address.tide.a=one:9000", "dfs.namenode.rpc-address.tide.b=two", "dfs.namenode.rpc-address.ebb.c=three:1",
	}
	for _, c := range []struct {
		authority  string
		properties []string
		want       []string
		fails      string
	}{
		{"host:9000", nil, []string{"host:9000"}, ""},
		{"host", nil, []string{"host:8020"}, ""},
		{"h1:1,h2, h3:3", nil, []string{"h1:1", "h2:8020", "h3:3"}, ""},
		{"tide", service, []string{"one:9000", "two:8020"}, ""},
		{"ebb", service, []string{"three:1"}, ""},
		{"", service, []string{"one:9000", "two:8020"}, ""},
		{"other:5", service, []string{"other:5"}, ""},
		{"", []string{"fs.defaultFS=hdfs://h:1"}, []string{"h:1"}, ""},
		{"", []string{"fs.default.name=hdfs://h"}, []string{"h:8020"}, ""},
		{"", nil, nil, "no namenode is named"},
		{"", []string{"fs.defaultFS=file:///"}, nil, "no fs.defaultFS"},
		{"tide", service[:len(service)-3], nil, "dfs.namenode.rpc-address.tide.a"},
		{"h", []string{"fs.defaultFS=hdfs://%zz"}, nil, "fs.defaultFS"},
	} {
		t.Run(c.authority+" "+c.fails, func(t *testing.T) {
			hadoop(t, c.properties...)
			cfg, err := Config{}.FromEnvironment(c.authority)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), "hdfs://"+c.authority) {
					t.Errorf("got %v, want an error with %q and the authority", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, cfg.Addresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if _, err := New(cfg); err != nil {
				t.Errorf("what was found is refused: %v", err)
			}
		})
	}
}

func TestFromEnvironmentKeepsWhatIsSet(t *testing.T) {
	hadoop(t, "fs.defaultFS=hdfs://h:1", "dfs.data.transfer.protection=privacy", "dfs.client.use.datanode.hostname=true")
	cfg, err := Config{Addresses: []string{"mine:1"}, User: "me"}.FromEnvironment("h:2")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Addresses[0] != "mine:1" || cfg.User != "me" {
		t.Errorf("%q, %q: replaced", cfg.Addresses, cfg.User)
	}
	if cfg.options.DataTransferProtection != "privacy" || !cfg.options.UseDatanodeHostname {
		t.Errorf("options %+v: not those of the configuration", cfg.options)
	}
	if cfg, err = (Config{}).FromEnvironment("h:2"); err != nil || cfg.User != "tester" {
		t.Errorf("user %q, %v", cfg.User, err)
	}
	t.Setenv("HADOOP_USER_NAME", "")
	if cfg, err = (Config{}).FromEnvironment("h:2"); err != nil || cfg.User == "" {
		t.Errorf("no user name: %v", err)
	}
}

func TestFromEnvironmentOfABrokenConfiguration(t *testing.T) {
	hadoop(t)
	file := filepath.Join(os.Getenv("HADOOP_CONF_DIR"), "core-site.xml")
	if err := os.WriteFile(file, []byte("<configuration><prop"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Config{}).FromEnvironment("h"); err == nil || !strings.Contains(err.Error(), "Hadoop configuration") {
		t.Errorf("got %v", err)
	}
	t.Setenv("HADOOP_CONF_DIR", filepath.Join(t.TempDir(), "none"))
	if cfg, err := (Config{}).FromEnvironment("h"); err != nil || cfg.Addresses[0] != "h:8020" {
		t.Errorf("%q, %v: a directory that is missing says nothing", cfg.Addresses, err)
	}
	hadoop(t, "hadoop.security.authentication=kerberos")
	t.Setenv("KRB5_CONFIG", filepath.Join(t.TempDir(), "krb5.conf"))
	if _, err := (Config{}).FromEnvironment("h"); err == nil || !strings.Contains(err.Error(), "Kerberos: configuration") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(os.Getenv("KRB5_CONFIG"), []byte("[libdefaults]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for cache, says := range map[string]string{"KEYRING:x": "only caches in files", "FILE:/none": "kinit", "/none": "kinit"} {
		t.Setenv("KRB5CCNAME", cache)
		if _, err := (Config{}).FromEnvironment("h"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", cache, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{Addresses: []string{"h:1"}, User: "u"}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*Config){
		"no namenode address":                      func(c *Config) { c.Addresses = nil },
		`"h": must be host:port`:                   func(c *Config) { c.Addresses = []string{"h"} },
		`"h:": must be host:port`:                  func(c *Config) { c.Addresses = []string{"h:"} },
		"no user name":                             func(c *Config) { c.User = "" },
		"replication -1":                           func(c *Config) { c.Replication = -1 },
		"at least -2 must":                         func(c *Config) { c.MinReplicas = -2 },
		"at least 4 datanodes must acknowledge: t": func(c *Config) { c.Replication, c.MinReplicas = 3, 4 },
		"block size -3":                            func(c *Config) { c.BlockSize = -3 },
		"timeout -1ns":                             func(c *Config) { c.Timeout = -1 },
		"patience -1ns":                            func(c *Config) { c.Patience = -1 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an error with %q", err, says)
		}
	}
}

func TestPathOf(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "/": "/", "a": "/a", "/a/b": "/a/b", "/a//b/": "/a/b", "/a/../b": "/b", "../../x": "/x",
		"hdfs://h:1/a": "/a", "hdfs://h/a/b/": "/a/b", "hdfs://h": "/", "hdfs:///a": "/a", "hdfs://h//a": "/a", "/hdfs://h/a": "/hdfs:/h/a",
	} {
		if got := pathOf(name); got != want {
			t.Errorf("pathOf(%q) is %q, want %q", name, got, want)
		}
	}
}
