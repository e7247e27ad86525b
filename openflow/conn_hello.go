// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// versionNames are the OpenFlow versions by their number on the wire.
var versionNames = [...]string{1: "1.0", 2: "1.1", 3: "1.2", 4: "1.3", 5: "1.4", 6: "1.5"}

// helloVersionBitmap is the type of the only element of a Hello.
const helloVersionBitmap = 1

// handshake exchanges Hello messages (OpenFlow 1.5.1, section 6.3.1). It ends
// in an error that names the switch's versions if 1.5 is not among them.
func handshake(ctx context.Context, nc net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err := exchangeHellos(nc)
	if !stop() {
		return fmt.Errorf("handshake: the switch does not answer: %w", ctx.Err())
	}
	return err
}

func exchangeHellos(nc net.Conn) error {
	ours := []byte{
		Version, typeHello, 0, 16, 0, 0, 0, 1,
		0, helloVersionBitmap, 0, 8, 0, 0, 0, 1 << Version,
	}
	if _, err := nc.Write(ours); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	var head [HeaderLen]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	length := int(binary.BigEndian.Uint16(head[2:]))
	if length < HeaderLen || length > 4096 {
		return errors.New("handshake: not an OpenFlow switch")
	}
	body := make([]byte, length-HeaderLen)
	if _, err := io.ReadFull(nc, body); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	switch head[1] {
	case typeHello:
		return checkVersion(helloVersions(head[0], body))
	case typeError:
		text := "no reason given"
		if len(body) > 4 {
			text = string(body[4:])
		}
		return fmt.Errorf("the switch refuses OpenFlow 1.5 (%.200q): add OpenFlow15 to the bridge's protocols", text)
	}
	return fmt.Errorf("handshake: message type %d in place of a Hello", head[1])
}

// helloVersions is the set of versions that a Hello offers, bit n for version
// n. Without a bitmap these are all up to the version of the header.
func helloVersions(version uint8, body []byte) uint32 {
	for len(body) >= 4 {
		typ, length := binary.BigEndian.Uint16(body), int(binary.BigEndian.Uint16(body[2:]))
		if length < 4 || length > len(body) {
			break
		}
		if typ == helloVersionBitmap && length >= 8 {
			return binary.BigEndian.Uint32(body[4:])
		}
		body = body[min(len(body), (length+7)/8*8):]
	}
	return 1<<(min(version, 30)+1) - 1
}

func checkVersion(versions uint32) error {
	if versions&(1<<Version) != 0 {
		return nil
	}
	var names []string
	for v, name := range versionNames {
		if name != "" && versions&(1<<v) != 0 {
			names = append(names, name)
		}
	}
	return fmt.Errorf("the switch speaks OpenFlow %s, not 1.5: add OpenFlow15 to the bridge's protocols",
		strings.Join(names, ", "))
}
