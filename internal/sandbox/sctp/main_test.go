// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What marshal writes is what unmarshal reads, and nothing else.
func TestUnmarshal(t *testing.T) {
	want := packet{source: 40000, destination: 9003, kind: chunkInit, value: initValue(0x01020304, nil)}
	got, err := unmarshal(want.marshal())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(packet{})); diff != "" {
		t.Error(diff)
	}
	broken := want.marshal()
	broken[20]++
	for name, b := range map[string][]byte{"empty": nil, "short": want.marshal()[:15], "changed": broken} {
		if _, err := unmarshal(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The checksum is CRC32c of the packet with zeros in its place, the least significant byte first.
func TestChecksum(t *testing.T) {
	b := packet{source: 40000, destination: 9003, kind: chunkAbort}.marshal()
	got := binary.LittleEndian.Uint32(b[8:])
	clear(b[8:12])
	crc := ^uint32(0)
	for _, octet := range b {
		crc ^= uint32(octet)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	if got != ^crc {
		t.Errorf("checksum %x, want %x", got, ^crc)
	}
}

// A client and a server agree on all that follows from an INIT.
func TestHandshake(t *testing.T) {
	first := packet{source: 40000, destination: 9003, kind: chunkInit, value: initValue(7, nil)}
	ack, ok := respond(first)
	if !ok || ack.kind != chunkInitAck || ack.tag != 7 || ack.source != 9003 || ack.destination != 40000 {
		t.Fatalf("answer %+v, %t", ack, ok)
	}
	tag, cookie, err := parseInit(ack.value)
	if err != nil || tag == 0 || cookie == nil {
		t.Fatalf("INIT ACK with tag %d, cookie %x, %v", tag, cookie, err)
	}
	last, ok := respond(packet{source: 40000, destination: 9003, tag: tag, kind: chunkCookieEcho, value: cookie})
	if !ok || last.kind != chunkCookieAck || last.tag != 7 {
		t.Errorf("answer %+v, %t", last, ok)
	}
	if _, ok := respond(last); ok {
		t.Error("an answer is answered")
	}
}

func TestParse(t *testing.T) {
	to, timeout, err := parseConnect([]string{"--timeout=3s", "--protocol=sctp", "[fd00::1]:9003"})
	if err != nil || to != netip.MustParseAddrPort("[fd00::1]:9003") || timeout != 3*time.Second {
		t.Errorf("%s, %s, %v", to, timeout, err)
	}
	for _, args := range [][]string{nil, {"--timeout=x", "10.0.0.1:1"}, {"10.0.0.1"}} {
		if _, _, err := parseConnect(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	ports, err := servedPorts([]string{"A=b", "SERVE_SCTP_PORT_9003=foo", "SERVE_SCTP_PORT_81=x"})
	if diff := cmp.Diff(map[uint16]bool{9003: true, 81: true}, ports); err != nil || diff != "" {
		t.Error(diff, err)
	}
}
