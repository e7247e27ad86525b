// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
)

// A record on disk is the CRC-32C of what follows (4 bytes, big endian) and JSON:
// the database itself would not notice a flipped bit in a value.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errChecksum = errors.New("checksum does not match")

func record(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return seal(text), nil
}

func readRecord(data []byte, v any) error {
	text, err := unseal(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

func seal(text []byte) []byte {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), crc32.Checksum(text, castagnoli))
	return append(out, text...)
}

// unseal returns a part of data.
func unseal(data []byte) ([]byte, error) {
	if len(data) < 4 || binary.BigEndian.Uint32(data) != crc32.Checksum(data[4:], castagnoli) {
		return nil, errChecksum
	}
	return data[4:], nil
}
