package hdfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"reflect"
	"strconv"
	"time"

	lib "github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// extent is how much there is of a file, and where.
type extent struct {
	blocks proto.Message // the answer to getBlockLocations
	length int64
}

// extentOf asks the namenode, and if another is writing the file, a datanode: of
// the last block the namenode knows no length, or an old one.
func (f *FS) extentOf(c *client, p string, blockSize int64) (*extent, error) {
	resp, err := c.call("getBlockLocations", arg{"src", p}, arg{"offset", uint64(0)}, arg{"length", uint64(math.MaxInt64)})
	if err != nil {
		return nil, err
	}
	if !has(resp, "locations") {
		return nil, fs.ErrNotExist
	}
	located := get(resp, "locations").Message()
	if !get(located, "underConstruction").Bool() {
		return &extent{blocks: resp.Interface(), length: int64(get(located, "fileLength").Uint())}, nil
	}
	if !has(located, "lastBlock") || get(located, "isLastBlockComplete").Bool() {
		return nil, ErrWriting // between two blocks, or before the first
	}
	last := get(located, "lastBlock").Message()
	n, err := f.visibleLength(last, blockSize)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWriting, err)
	}
	setLength := func(b protoreflect.Message) {
		block := b.Mutable(b.Descriptor().Fields().ByName("b")).Message()
		block.Set(block.Descriptor().Fields().ByName("numBytes"), protoreflect.ValueOfUint64(uint64(n)))
	}
	// The list may have the last block, with the length that the namenode knows.
	list := located.Mutable(located.Descriptor().Fields().ByName("blocks")).List()
	offset := get(last, "offset").Uint()
	if k := list.Len(); k == 0 || get(list.Get(k-1).Message(), "offset").Uint() != offset {
		list.Append(protoreflect.ValueOfMessage(last))
	}
	setLength(list.Get(list.Len() - 1).Message())
	return &extent{blocks: resp.Interface(), length: int64(offset) + n}, nil
}

// show gives a reader of the library what it would ask the namenode for. It keeps
// that in fields of its own, of types that are internal.
func (t *extent) show(r *lib.FileReader) error {
	status, ok := r.Stat().Sys().(*lib.FileStatus)
	field := reflect.ValueOf(r).Elem().FieldByName("blocks")
	located := reflect.ValueOf(t.blocks).MethodByName("GetLocations")
	if !ok || !field.IsValid() || !located.IsValid() {
		return fmt.Errorf("%w: the library's reader is not that of version 2.4.0", errDefinite)
	}
	blocks := located.Call(nil)[0].MethodByName("GetBlocks").Call(nil)[0]
	if field.Type() != blocks.Type() {
		return fmt.Errorf("%w: the library's reader is not that of version 2.4.0", errDefinite)
	}
	status.Length = proto.Uint64(uint64(t.length))
	reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Set(blocks)
	return nil
}

// blockSize is how much a block of the file may have.
func blockSize(r *lib.FileReader) int64 {
	if status, ok := r.Stat().Sys().(*lib.FileStatus); ok {
		return int64(status.GetBlocksize())
	}
	return math.MaxInt64 / 2 // show says what is wrong
}

// visibleLength asks the datanodes of a block, one after the other, how many
// bytes of it a reader may see: -1, says one that was restarted while it wrote.
func (f *FS) visibleLength(located protoreflect.Message, most int64) (int64, error) {
	err := errors.New("no datanode has its last block")
	locs := get(located, "locs").List()
	for i := range locs.Len() {
		id := get(locs.Get(i).Message(), "id").Message()
		host := get(id, "ipAddr").String()
		if f.cfg.options.UseDatanodeHostname {
			host = get(id, "hostName").String()
		}
		addr := net.JoinHostPort(host, strconv.FormatUint(get(id, "ipcPort").Uint(), 10))
		var n int64
		n, err = f.askLength(addr, get(located, "b").Message())
		if err == nil && (n < 0 || n > most) {
			err = fmt.Errorf("datanode %s: %d bytes of a block are visible, want 0 to %d", addr, n, most)
		}
		if err == nil {
			return n, nil
		}
	}
	return 0, err
}

const datanodeProtocol = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol"

// askLength is one call of a datanode, in Hadoop's RPC without authentication.
// Under Kerberos the datanode hangs up.
func (f *FS) askLength(addr string, block protoreflect.Message) (n int64, err error) {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout)
	defer cancel()
	conn, err := f.cfg.Dial(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(f.ctx, func() { _ = conn.Close() })() // the call has an error then
	if err := conn.SetDeadline(time.Now().Add(f.cfg.Timeout)); err != nil {
		return 0, err
	}
	b := builder{out: []byte{'h', 'r', 'p', 'c', 9, 0, 0}, client: []byte(token())}
	b.packet(
		b.rpcHeader(-3),
		b.message("hadoop.common.IpcConnectionContextProto", arg{"protocol", datanodeProtocol},
			arg{"userInfo", b.message("hadoop.common.UserInformationProto", arg{"effectiveUser", f.cfg.User})}),
	)
	b.packet(
		b.rpcHeader(0),
		b.message("hadoop.common.RequestHeaderProto", arg{"methodName", "getReplicaVisibleLength"},
			arg{"declaringClassProtocolName", datanodeProtocol}, arg{"clientProtocolVersion", uint64(1)}),
		b.message("hadoop.hdfs.GetReplicaVisibleLengthRequestProto", arg{"block", block}),
	)
	if b.err != nil {
		return 0, b.err
	}
	if _, err := conn.Write(b.out); err != nil {
		return 0, err
	}
	header, answer := b.message("hadoop.common.RpcResponseHeaderProto"), b.message("hadoop.hdfs.GetReplicaVisibleLengthResponseProto")
	if b.err != nil {
		return 0, b.err
	}
	rest, err := readAnswer(conn, header)
	if err != nil {
		return 0, fmt.Errorf("datanode %s: %w", addr, err)
	}
	if get(header, "status").Enum() != 0 {
		return 0, fmt.Errorf("datanode %s: %s: %s", addr, shortClass(get(header, "exceptionClassName").String()), firstLine(get(header, "errorMsg").String()))
	}
	if _, err := delimited(rest, answer); err != nil {
		return 0, fmt.Errorf("datanode %s: %w", addr, err)
	}
	return int64(get(answer, "length").Uint()), nil
}

// builder makes what is sent in Hadoop's RPC: packets of messages, each with its
// length in front.
type builder struct {
	out    []byte
	client []byte
	err    error
}

func (b *builder) message(name string, args ...arg) protoreflect.Message {
	m, err := newMessage(name)
	if err != nil {
		b.err = err
		return nil
	}
	for _, a := range args {
		m.Set(m.Descriptor().Fields().ByName(a.name), protoreflect.ValueOf(a.value))
	}
	return m
}

func (b *builder) rpcHeader(call int32) protoreflect.Message {
	return b.message("hadoop.common.RpcRequestHeaderProto", arg{"rpcKind", protoreflect.EnumNumber(2)},
		arg{"rpcOp", protoreflect.EnumNumber(0)}, arg{"callId", call}, arg{"clientId", b.client})
}

func (b *builder) packet(messages ...protoreflect.Message) {
	var body []byte
	for _, m := range messages {
		if b.err != nil {
			return
		}
		data, err := proto.Marshal(m.Interface())
		if err != nil {
			b.err = err
			return
		}
		body = append(binary.AppendUvarint(body, uint64(len(data))), data...)
	}
	b.out = append(binary.BigEndian.AppendUint32(b.out, uint32(len(body))), body...)
}

// readAnswer reads one packet and the header in it; the rest is returned.
func readAnswer(r io.Reader, header protoreflect.Message) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > longestReply {
		return nil, fmt.Errorf("answer of %d bytes: not an HDFS datanode", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return delimited(body, header)
}

// delimited reads a message with its length in front.
func delimited(b []byte, m protoreflect.Message) (rest []byte, err error) {
	r := bytes.NewReader(b)
	n, err := binary.ReadUvarint(r)
	if err != nil || n > uint64(r.Len()) {
		return nil, errors.New("an answer that ends too early")
	}
	at := len(b) - r.Len()
	return b[at+int(n):], proto.Unmarshal(b[at:at+int(n)], m.Interface())
}
