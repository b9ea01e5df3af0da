// Package rpc is what driver and executors say to each other: messages that
// hold data only, and the in-process transport. A cluster transport carries
// the same messages between processes.
//
// Messages to one executor arrive in the order they were sent. In checked
// mode the in-process transport encodes and decodes every message, which
// proves that none smuggles code or shared memory.
package rpc
