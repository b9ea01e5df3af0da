package hdfstest_test

import (
	"fmt"

	"github.com/colinmarc/hdfs/v2"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

func Example() {
	c := hdfstest.Start(hdfstest.Options{SilentWrites: true})
	defer c.Close()
	client, err := hdfs.NewClient(hdfs.ClientOptions{
		Addresses: c.Namenodes(), User: "tester", NamenodeDialFunc: c.Dial, DatanodeDialFunc: c.Dial,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	w, err := client.Create("/log")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = w.Write([]byte("a record"))
	fmt.Println("write:", err)
	pipeline, err := c.Pipeline("/log")
	fmt.Println("datanodes:", len(pipeline), err)
	c.KillDatanode(pipeline[1])
	fmt.Println("flush:", w.Flush())
	fmt.Println("close:", w.Close())
	// Output:
	// write: <nil>
	// datanodes: 3 <nil>
	// flush: <nil>
	// close: Ack error from datanode: ERROR
}
