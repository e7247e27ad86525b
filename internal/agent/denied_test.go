// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/hex"
	"strings"
	"testing"
)

// Frames: Ethernet, IP, the first bytes of what follows.
const (
	ethernet  = "0a0000000001 0a0000000002"
	ipv4Frame = ethernet + "0800 4500003c00004000 40060000 0a000001 0a000002 c0001f90 00000000"
	ipv6Frame = ethernet + "86dd 6000000000103c40 fd000000000000000000000000000001 fd000000000000000000000000000002" +
		"1100000000000000 13880035 00080000"
)

func frame(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestParseDenied(t *testing.T) {
	for name, tc := range map[string]struct{ frame, want string }{
		"IPv4":             {ipv4Frame, "tcp 10.0.0.1:49152 > 10.0.0.2:8080"},
		"IPv6, extension":  {ipv6Frame, "udp [fd00::1]:5000 > [fd00::2]:53"},
		"VLAN":             {ethernet + "8100 0005" + ipv4Frame[len(ethernet):], "tcp 10.0.0.1:49152 > 10.0.0.2:8080"},
		"a later fragment": {strings.Replace(ipv4Frame, "00004000", "00000010", 1), "tcp 10.0.0.1 > 10.0.0.2"},
		"ICMP":             {strings.Replace(ipv4Frame, "4006", "4001", 1), "icmp 10.0.0.1 > 10.0.0.2"},
		"another":          {strings.Replace(ipv4Frame, "4006", "4059", 1), "89 10.0.0.1 > 10.0.0.2"},
		"cut":              {ipv4Frame[:len(ipv4Frame)-18], "tcp 10.0.0.1 > 10.0.0.2"},
		"ARP":              {ethernet + "0806" + ipv4Frame[len(ethernet)+4:], ""},
		"short":            {ethernet, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, ok := parseDenied(frame(tc.frame))
			got := ""
			if ok {
				got = d.protocol + " " + endText(d.source) + " > " + endText(d.destination)
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzParseDenied(f *testing.F) {
	f.Add(frame(ipv4Frame))
	f.Add(frame(ipv6Frame))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := parseDenied(b); ok && (!d.source.IsValid() || !d.destination.IsValid()) {
			t.Errorf("%x: %+v", b, d)
		}
	})
}
