// SPDX-License-Identifier: Apache-2.0

//go:build integration

package conntrack

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/ovstest"
)

// TestMain runs the tests in a network namespace of their own: its table ends with them.
func TestMain(m *testing.M) {
	ovstest.OwnNamespace()
	os.Exit(m.Run())
}

// known has the kernel know a connection. A server of the zero address is the destination itself.
func known(t testing.TB, zone uint16, protocol uint8, client, destination, server string) {
	t.Helper()
	src, dst := netip.MustParseAddrPort(client), netip.MustParseAddrPort(destination)
	answers := dst
	if server != "" {
		answers = netip.MustParseAddrPort(server)
	}
	family := uint8(unix.AF_INET)
	if src.Addr().Is6() {
		family = unix.AF_INET6
	}
	be := binary.BigEndian
	ae := netlink.NewAttributeEncoder()
	tuple := func(typ uint16, from, to netip.AddrPort) {
		ae.Nested(typ, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(tupleIP, func(ae *netlink.AttributeEncoder) error {
				types := [2]uint16{ipSrc4, ipDst4}
				if family == unix.AF_INET6 {
					types = [2]uint16{ipSrc6, ipDst6}
				}
				ae.Bytes(types[0], from.Addr().AsSlice())
				ae.Bytes(types[1], to.Addr().AsSlice())
				return nil
			})
			ae.Nested(tupleProto, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(protoNum, protocol)
				ae.Bytes(protoSrcPort, be.AppendUint16(nil, from.Port()))
				ae.Bytes(protoDstPort, be.AppendUint16(nil, to.Port()))
				return nil
			})
			return nil
		})
	}
	tuple(attrOrig, src, dst)
	tuple(attrReply, answers, src)
	const attrStatus, attrProtoInfo, attrTimeout, confirmed = 3, 4, 7, 8
	ae.Bytes(attrStatus, be.AppendUint32(nil, confirmed))
	ae.Bytes(attrTimeout, be.AppendUint32(nil, 600))
	ae.Bytes(attrMark, be.AppendUint32(nil, 7))
	ae.Bytes(attrZone, be.AppendUint16(nil, zone))
	if protocol == unix.IPPROTO_TCP {
		ae.Nested(attrProtoInfo, func(ae *netlink.AttributeEncoder) error {
			// established.
			ae.Nested(1, func(ae *netlink.AttributeEncoder) error { ae.Uint8(1, 3); return nil })
			return nil
		})
	}
	attributes, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := request(msgNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, family)
	r.AddRawData(attributes)
	if _, err := r.Execute(unix.NETLINK_NETFILTER, 0); err != nil {
		t.Fatalf("%s to %s in zone %d: %v", client, destination, zone, err)
	}
}

func TestKernel(t *testing.T) {
	const udp, tcp = unix.IPPROTO_UDP, unix.IPPROTO_TCP
	known(t, 1, tcp, "10.0.0.5:1000", "10.0.0.9:80", "")
	known(t, 1, udp, "10.0.0.5:1000", "10.0.0.9:80", "")
	known(t, 1, udp, "10.0.0.9:1000", "10.0.0.5:80", "")
	known(t, 1, udp, "10.0.0.9:1001", "10.96.0.1:80", "10.0.0.5:8080") // 10.0.0.5 is an endpoint
	known(t, 1, udp, "10.0.0.8:1001", "10.0.0.9:80", "")               // of others
	known(t, 2, udp, "10.0.0.5:1000", "10.0.0.9:80", "")               // another Router's
	known(t, 0, udp, "10.0.0.5:1000", "10.0.0.9:80", "")               // the host's own
	known(t, 1, udp, "[fd00::5]:1000", "[fd00::9]:80", "")
	known(t, 1, udp, "[fd00::9]:1000", "[fd00::8]:80", "")

	count := func(zone uint16, protocol uint8) int {
		t.Helper()
		n := 0
		if err := (Kernel{}).Each(t.Context(), zone, protocol, func(Connection) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if a, b, c := count(1, udp), count(1, tcp), count(2, udp); a != 6 || b != 1 || c != 1 {
		t.Errorf("%d of UDP and %d of TCP in zone 1, %d of UDP in zone 2; want 6, 1, 1", a, b, c)
	}
	var through []Connection
	err := (Kernel{}).Each(t.Context(), 1, udp, func(c Connection) bool {
		if c.Orig.SrcPort == 1001 && c.Orig.Src == netip.MustParseAddr("10.0.0.9") {
			through = append(through, c)
		}
		return true
	})
	want := []Connection{{
		Protocol: udp, Zone: 1, Mark: 7,
		Orig:  Tuple{Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.96.0.1"), SrcPort: 1001, DstPort: 80},
		Reply: Tuple{Src: netip.MustParseAddr("10.0.0.5"), Dst: netip.MustParseAddr("10.0.0.9"), SrcPort: 8080, DstPort: 1001},
	}}
	if diff := cmp.Diff(want, through, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("connection to a Service (-want +got):\n%s\n%v", diff, err)
	}

	flush := func(address string, zones []uint16, want int) {
		t.Helper()
		if n, err := (Kernel{}).Flush(t.Context(), netip.MustParseAddr(address), zones); n != want || err != nil {
			t.Errorf("flush of %s in zones %v: %d connections, want %d; %v", address, zones, n, want, err)
		}
	}
	flush("10.0.0.5", []uint16{1, 65535}, 4)
	flush("10.0.0.5", []uint16{1, 65535}, 0)
	flush("fd00::5", []uint16{1}, 1)
	flush("10.0.0.7", nil, 0)
	zones, err := (Kernel{}).CountZones(t.Context())
	if diff := cmp.Diff(map[uint16]int{0: 1, 1: 2, 2: 1}, zones); diff != "" || err != nil {
		t.Errorf("connections by zone (-want +got):\n%s\n%v", diff, err)
	}
	flush("10.0.0.5", nil, 1)
	if zones, err = (Kernel{}).CountZones(t.Context()); zones[0] != 1 || zones[2] != 0 || err != nil {
		t.Errorf("after a flush of all zones: %v, %v", zones, err)
	}
}

// BenchmarkKernelFlush measures a flush among many connections of others: make bench runs it.
func BenchmarkKernelFlush(b *testing.B) {
	many, err := strconv.Atoi(os.Getenv("COELAN_CONNECTIONS"))
	if err != nil {
		many = 10000
	}
	for i := range many {
		src := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		known(b, 1, unix.IPPROTO_UDP, netip.AddrPortFrom(src, uint16(1+i>>16)).String(), "10.2.0.1:80", "")
	}
	a := netip.MustParseAddr("10.0.0.5")
	for b.Loop() {
		known(b, 1, unix.IPPROTO_UDP, "10.0.0.5:1000", "10.0.0.9:80", "")
		if n, err := (Kernel{}).Flush(b.Context(), a, []uint16{1}); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
	start := time.Now()
	n := 0
	if err := (Kernel{}).Each(b.Context(), 1, unix.IPPROTO_UDP, func(Connection) bool { n++; return true }); err != nil || n < many {
		b.Fatal(n, err)
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/list")
}
