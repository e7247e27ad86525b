// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a socket that configure IPVS, and what they take: struct ip_vs_service_user and struct
// ip_vs_dest_user of linux/ip_vs.h.
const (
	ipvsAdd     = 1152 + 2
	ipvsAddDest = 1152 + 7
	ipvsFlush   = 1152 + 5
	serviceSize = 44
	destSize    = 24
)

// ipvsService is a Service of kube-proxy's mode ipvs, of UDP: masqueraded, and its packets tracked.
func ipvsService(t *testing.T, at, to netip.AddrPort) {
	t.Helper()
	_ = exec.Command("modprobe", "-q", "ip_vs").Run()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	place := func(b []byte, a netip.AddrPort) []byte {
		return append(binary.BigEndian.AppendUint16(append(b, a.Addr().AsSlice()...), a.Port()), 0, 0)
	}
	service := place(binary.NativeEndian.AppendUint32(nil, unix.IPPROTO_UDP), at)
	service = append(append(service, 0, 0, 0, 0), "rr"...)
	service = append(service, make([]byte, serviceSize-len(service))...)
	dest := binary.NativeEndian.AppendUint32(place(nil, to), 0)
	dest = binary.NativeEndian.AppendUint32(dest, 1)
	dest = append(dest, make([]byte, destSize-len(dest))...)
	set := func(option int, value []byte) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_IP, option, string(value))
	}
	if err := set(ipvsAdd, service); errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("the kernel has no IPVS")
	} else {
		must(t, err)
	}
	t.Cleanup(func() { _ = set(ipvsFlush, nil) })
	must(t, set(ipvsAddDest, append(service, dest...)))
	must(t, os.WriteFile("/proc/sys/net/ipv4/vs/conntrack", []byte("1"), 0))
}

// TestGuardIPVS has IPVS send a pod's packets to another node. They are neither forwarded nor the
// node's own.
func TestGuardIPVS(t *testing.T) {
	h := makeWorld(t)
	w := worlds["IPv4"]
	for i, port := range []int{9000, tunnelPort, memberPort} {
		ipvsService(t, netip.AddrPortFrom(netip.MustParseAddr(w.node), uint16(toTunnel+i)),
			netip.AddrPortFrom(netip.MustParseAddr(w.client), uint16(port)))
	}
	patience = 5 * time.Second
	defer func() { patience = hurry }()
	for _, guard := range []bool{false, true} {
		d := guarded(true, true)
		if !guard {
			d.Guard = Guard{}
		}
		_, err := h.Apply(d)
		must(t, err)
		for i, stopped := range []bool{false, true, true} {
			a := attempt{network: "udp", ns: bridge, from: w.pod, to: w.node, port: toTunnel + i, size: 1}
			if want := !guard || !stopped; a.answered() != want {
				t.Errorf("guard %t: a pod's packet to Service %d is to be answered: %t", guard, i, want)
			}
		}
	}
}
