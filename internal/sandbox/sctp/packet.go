// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Types of chunks (RFC 9260, section 3.2).
const (
	chunkInit       = 1
	chunkInitAck    = 2
	chunkAbort      = 6
	chunkCookieEcho = 10
	chunkCookieAck  = 11
)

// parameterCookie is the type of the state cookie in an INIT ACK.
const parameterCookie = 7

// packet is one with a single chunk.
type packet struct {
	source, destination uint16
	tag                 uint32 // of the receiver
	kind                uint8  // of the chunk
	value               []byte // of the chunk
}

const (
	headerLength = 12
	chunkHeader  = 4
	// initLength is that of an INIT's fixed fields: tag, window, numbers of streams, first number.
	initLength = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marshal fills in the checksum, which is the one field in little endian.
func (p packet) marshal() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.source)
	b = binary.BigEndian.AppendUint16(b, p.destination)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0, p.kind, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(chunkHeader+len(p.value)))
	b = append(b, p.value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

func unmarshal(b []byte) (packet, error) {
	if len(b) < headerLength+chunkHeader {
		return packet{}, errors.New("too short")
	}
	zeroed := append([]byte(nil), b...)
	binary.LittleEndian.PutUint32(zeroed[8:], 0)
	if crc32.Checksum(zeroed, castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return packet{}, errors.New("wrong checksum")
	}
	length := int(binary.BigEndian.Uint16(b[headerLength+2:]))
	if length < chunkHeader || headerLength+length > len(b) {
		return packet{}, errors.New("wrong length of a chunk")
	}
	return packet{
		source: binary.BigEndian.Uint16(b), destination: binary.BigEndian.Uint16(b[2:]),
		tag:  binary.BigEndian.Uint32(b[4:]),
		kind: b[headerLength], value: b[headerLength+chunkHeader : headerLength+length],
	}, nil
}

// initValue is that of an INIT, or of an INIT ACK with a cookie.
func initValue(tag uint32, cookie []byte) []byte {
	const window = 1 << 16
	b := binary.BigEndian.AppendUint32(nil, tag)
	b = binary.BigEndian.AppendUint32(b, window)
	b = append(b, 0, 1, 0, 1) // one stream each way
	b = binary.BigEndian.AppendUint32(b, tag)
	if cookie != nil {
		b = binary.BigEndian.AppendUint16(b, parameterCookie)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(cookie)))
		b = append(b, cookie...)
	}
	return b
}

// parseInit returns the tag of an INIT or INIT ACK and the state cookie of the latter.
func parseInit(value []byte) (tag uint32, cookie []byte, err error) {
	if len(value) < initLength {
		return 0, nil, errors.New("INIT is too short")
	}
	tag = binary.BigEndian.Uint32(value)
	for rest := value[initLength:]; len(rest) >= 4; {
		length := int(binary.BigEndian.Uint16(rest[2:]))
		if length < 4 || length > len(rest) {
			return tag, nil, errors.New("wrong length of a parameter")
		}
		if binary.BigEndian.Uint16(rest) == parameterCookie {
			return tag, rest[4:length], nil
		}
		rest = rest[min(len(rest), (length+3)&^3):]
	}
	return tag, nil, nil
}
