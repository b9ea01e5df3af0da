package tidemill

import (
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/receiver"
)

// Pair is a record with a key.
type Pair[K comparable, V any] = rdd.Pair[K, V]

// KV returns the pair of k and v.
func KV[K comparable, V any](k K, v V) Pair[K, V] { return rdd.KV(k, v) }

// Opt is a value that may be missing.
type Opt[T any] = rdd.Opt[T]

// Some returns an Opt that holds v.
func Some[T any](v T) Opt[T] { return rdd.Some(v) }

// None returns an empty Opt.
func None[T any]() Opt[T] { return rdd.None[T]() }

// CoGrouped holds the values of one key in two streams.
type CoGrouped[V, W any] = rdd.CoGrouped[V, W]

// Joined holds one value of each side of a join.
type Joined[V, W any] = rdd.Joined[V, W]

// RDD is a batch's data set inside a Transform function; package rdd has its
// operations.
type RDD[T any] = rdd.RDD[T]

// Partitioner places keys; see rdd.Hash and rdd.PartitionBy.
type Partitioner[K comparable] = rdd.Partitioner[K]

// Task is what functions that work on whole partitions get: the batch, the
// partition, a context, counters, and a key for idempotent writes.
type Task = rdd.Task

// BatchTime is the time of a batch in milliseconds since the Unix epoch.
type BatchTime = base.BatchTime

// StorageLevel says where received blocks or kept data sets live.
type StorageLevel = base.StorageLevel

// Storage levels.
const (
	MemoryOnly    = base.MemoryOnly
	MemoryAndDisk = base.MemoryAndDisk
	DiskOnly      = base.DiskOnly
)

// Receiver brings records in from outside; see package receiver.
type Receiver[T any] = receiver.Receiver[T]

// Sink is what a Receiver stores its records in; see package receiver.
type Sink[T any] = receiver.Sink[T]

// TaskError is the failure of user code in a task: it names the operator,
// batch, partition and record.
type TaskError = base.TaskError

// What listeners hear. A listener implements any of the interfaces of package
// driver: driver.BatchCompletedListener and its siblings.
type (
	// BatchInfo tells of a batch.
	BatchInfo = driver.BatchInfo
	// OutputInfo tells of an output in a batch.
	OutputInfo = driver.OutputInfo
	// ReceiverInfo tells of a receiver.
	ReceiverInfo = driver.ReceiverInfo
	// Alarm tells of something that an operator should know.
	Alarm = driver.Alarm
	// StopReport says what a stop left.
	StopReport = driver.StopReport
)
