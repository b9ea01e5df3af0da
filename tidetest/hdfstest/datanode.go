package hdfstest

import (
	"bufio"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// The data transfer protocol: its version and operations.
const (
	transferVersion = 28
	opWriteBlock    = 0x50
	opReadBlock     = 0x51
	opBlockChecksum = 0x55
)

// Statuses of answers and acknowledgements.
const (
	statusSuccess          = 0
	statusError            = 1
	statusErrorChecksum    = 2
	statusErrorUnsupported = 7
)

// serveBlocks answers operations until one ends the connection.
func (d *datanode) serveBlocks(l *link) {
	r := bufio.NewReaderSize(l, 64<<10)
	for {
		var op [3]byte
		if _, err := io.ReadFull(r, op[:]); err != nil || binary.BigEndian.Uint16(op[:]) != transferVersion {
			return
		}
		var err error
		switch op[2] {
		case opWriteBlock:
			err = d.write(l, r)
		case opReadBlock:
			err = d.read(l, r)
		case opBlockChecksum:
			err = d.checksum(l, r)
		default:
			err = fmt.Errorf("hdfstest: operation %#x is not supported", op[2])
		}
		if err != nil {
			return
		}
	}
}

// respond answers an operation.
func respond(l *link, m message) error {
	b, err := appendDelimited(nil, m)
	if err != nil {
		return err
	}
	_, err = l.Write(b)
	return err
}

// response always names a bad link, if only "": the client library reads at
// least five bytes.
func response(status int64, badLink, text string) message {
	m := hdfsMessage("BlockOpResponseProto").setNum("status", status).setStr("firstBadLink", badLink)
	if text != "" {
		m.setStr("message", text)
	}
	return m
}

// checksum answers with the MD5 of a finished replica's checksums.
func (d *datanode) checksum(l *link, r *bufio.Reader) error {
	op := hdfsMessage("OpBlockChecksumProto")
	if err := readDelimited(r, op); err != nil {
		return err
	}
	b := op.sub("header").sub("block")
	data, err := d.bytes(b, 0, b.num("numBytes"))
	if err != nil {
		return respond(l, response(statusError, "", err.Error()))
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := md5.Sum(appendSums(nil, data, table))
	return respond(l, response(statusSuccess, "", "").setSub("checksumResponse", hdfsMessage("OpBlockChecksumResponseProto").
		setNum("bytesPerCrc", chunkSize).setNum("crcPerBlock", chunks(len(data))).setRaw("blockChecksum", sum[:]).setNum("crcType", checksumCRC32C)))
}

// appendSums appends a checksum for each chunk of data.
func appendSums(b, data []byte, table *crc32.Table) []byte {
	for len(data) > 0 {
		n := min(chunkSize, len(data))
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(data[:n], table))
		data = data[n:]
	}
	return b
}

func chunks(size int) int64 { return int64((size + chunkSize - 1) / chunkSize) }
