package realcluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Count reads a number that a node counts from its start on, such as
// "CreateFileOps" of the bean "NameNodeActivity". The names are Hadoop's; that
// of the bean may end with "*". What it says may be a second old.
func (h *HDFS) Count(n Node, bean, counter string) (int64, error) {
	service, addr := "NameNode", h.http
	if n != Namenode {
		var err error
		if addr, err = h.web(n); err != nil {
			return 0, err
		}
		service = "DataNode"
	}
	facts, err := jmx(addr, service, bean)
	if err != nil {
		return 0, err
	}
	count, ok := facts[counter].(float64)
	if !ok {
		return 0, fmt.Errorf("realcluster: %v has no number %q in its bean %q", n, counter, bean)
	}
	return int64(count), nil
}

// Creates is how many files the namenode was asked to create since its start.
func (h *HDFS) Creates() (int64, error) {
	return h.Count(Namenode, "NameNodeActivity", "CreateFileOps")
}

// FsyncCount is how often a datanode has synced a block to its disk since its start.
func (h *HDFS) FsyncCount(n Node) (int64, error) {
	return h.Count(n, "DataNodeActivity*", "FsyncCount")
}

// web is the address of a datanode's web server, a new one after each start, as
// the namenode knows it.
func (h *HDFS) web(n Node) (string, error) {
	env, err := h.launch.env()
	if err != nil {
		return "", err
	}
	facts, err := jmx(h.http, "NameNode", "NameNodeInfo")
	if err != nil {
		return "", err
	}
	text, _ := facts["LiveNodes"].(string)
	var live map[string]struct {
		InfoAddr string `json:"infoAddr"`
	}
	if err := json.Unmarshal([]byte(text), &live); err != nil {
		return "", fmt.Errorf("realcluster: live datanodes %q: %w", text, err)
	}
	addr := "127.0.0.1:" + env[fmt.Sprintf("HDFS_DATANODE_PORT_%d", int(n))]
	node, ok := live[addr]
	if !ok {
		return "", fmt.Errorf("realcluster: %v at %s is not live", n, addr)
	}
	return node.InfoAddr, nil
}

// jmx reads one bean.
func jmx(addr, service, bean string) (map[string]any, error) {
	query := url.Values{"qry": {"Hadoop:service=" + service + ",name=" + bean}}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	res, err := c.Get("http://" + addr + "/jmx?" + query.Encode())
	if err != nil {
		return nil, fmt.Errorf("realcluster: bean %q: %w", bean, err)
	}
	defer res.Body.Close()
	var answer struct {
		Beans []map[string]any `json:"beans"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("realcluster: bean %q: %w", bean, err)
	}
	if len(answer.Beans) != 1 {
		return nil, fmt.Errorf("realcluster: %d beans are called %q, want one", len(answer.Beans), bean)
	}
	return answer.Beans[0], nil
}
