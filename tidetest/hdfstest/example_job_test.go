package hdfstest_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// A job keeps its logs on a cluster whose namenode is killed and comes back.
func ExampleCluster_Listen() {
	c := hdfstest.Start(hdfstest.Options{})
	defer c.Close()
	if err := c.Listen(); err != nil {
		fmt.Println(err)
		return
	}
	app := tidemill.App{Name: "numbers", Build: func(ssc *tidemill.StreamingContext) error {
		tidemill.SaveAsTextFiles(tidemill.ConstantStream(ssc, "numbers", []int{1, 2, 3}), "out", "hdfs://"+c.Namenodes()[0]+"/out", nil)
		return nil
	}}
	ssc, err := tidemill.New(app, tidemill.Config{BatchInterval: 200 * time.Millisecond}, tidemill.WithDir("hdfs://"+c.Namenodes()[0]+"/job"))
	if err == nil {
		err = ssc.Start(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	<-time.After(500 * time.Millisecond)
	c.KillNamenode(0)
	<-time.After(500 * time.Millisecond)
	err = c.RestartNamenode(0)
	<-time.After(500 * time.Millisecond)
	_, stopped := ssc.Stop(context.Background(), true)
	fmt.Println(err, stopped, slices.Contains(c.Tree(), "/job/TIDEMILL"))
	// Output: <nil> <nil> true
}
