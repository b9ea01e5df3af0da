package hdfs

import "bytes"

// Answer reads what a datanode answers when it is asked for a length.
func Answer(b []byte) (uint64, error) {
	header, err := newMessage("hadoop.common.RpcResponseHeaderProto")
	if err != nil {
		return 0, err
	}
	answer, err := newMessage("hadoop.hdfs.GetReplicaVisibleLengthResponseProto")
	if err != nil {
		return 0, err
	}
	rest, err := readAnswer(bytes.NewReader(b), header)
	if err == nil {
		_, err = delimited(rest, answer)
	}
	return get(answer, "length").Uint(), err
}
