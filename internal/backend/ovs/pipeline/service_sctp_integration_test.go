// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab/probe"
)

// The packets that begin an association of SCTP (RFC 9260), for kernels that have none.
const (
	sctpInit    = 1
	sctpInitAck = 2
	sctpProto   = "132"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpPacket has a chunk INIT or INIT ACK alone.
func sctpPacket(src, dst uint16, tag uint32, chunk byte) []byte {
	p := make([]byte, 12, 40)
	binary.BigEndian.PutUint16(p[0:], src)
	binary.BigEndian.PutUint16(p[2:], dst)
	binary.BigEndian.PutUint32(p[4:], tag)
	body := []byte{chunk, 0, 0, 20, 0, 0, 0, 42, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 7}
	if chunk == sctpInitAck {
		body = append(body, 0, 7, 0, 8, 1, 2, 3, 4) // a state cookie
		body[3] = byte(len(body))
	}
	p = append(p, body...)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, castagnoli))
	return p
}

// checkSCTP says what is wrong with a packet.
func checkSCTP(p []byte, src, dst uint16, chunk byte) error {
	if len(p) < 16 {
		return fmt.Errorf("%d bytes", len(p))
	}
	gotSrc, gotDst := binary.BigEndian.Uint16(p[0:]), binary.BigEndian.Uint16(p[2:])
	sum := binary.LittleEndian.Uint32(p[8:])
	binary.LittleEndian.PutUint32(p[8:], 0)
	want := crc32.Checksum(p, castagnoli)
	if gotSrc != src || gotDst != dst || p[12] != chunk || sum != want {
		return fmt.Errorf("ports %d to %d, chunk %d, checksum %#x; want %d to %d, chunk %d, checksum %#x", gotSrc, gotDst, p[12], sum, src, dst, chunk, want)
	}
	return nil
}

// shakeSCTP sends an INIT to a Service and an INIT ACK back from an endpoint,
// without the kernels' knowing.
func shakeSCTP(client, server *ovstest.Namespace, clientIP, vip, serverIP string, vport, port uint16) error {
	raw := func(ns *ovstest.Namespace, address string) (c net.PacketConn, err error) {
		kind := "ip4:" + sctpProto
		if net.ParseIP(address).To4() == nil {
			kind = "ip6:" + sctpProto
		}
		err = ns.Do(func() (err error) {
			c, err = net.ListenPacket(kind, address)
			return err
		})
		if err == nil {
			err = c.SetDeadline(time.Now().Add(talkTime))
		}
		return c, err
	}
	from, err := raw(client, clientIP)
	if err != nil {
		return err
	}
	defer from.Close()
	at, err := raw(server, serverIP)
	if err != nil {
		return err
	}
	defer at.Close()
	const clientPort, clientTag = 4321, 42
	buf := make([]byte, 2000)
	var n int
	var peer net.Addr
	for range 3 { // as the protocol does; the first packets of an interface may be lost
		if _, err := from.WriteTo(sctpPacket(clientPort, vport, 0, sctpInit), &net.IPAddr{IP: net.ParseIP(vip)}); err != nil {
			return err
		}
		_ = at.SetReadDeadline(time.Now().Add(talkTime / 3))
		if n, peer, err = at.ReadFrom(buf); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("the endpoint: %w", err)
	}
	if err := checkSCTP(buf[:n], clientPort, port, sctpInit); err != nil || peer.String() != clientIP {
		return fmt.Errorf("the endpoint has from %s: %w", peer, err)
	}
	if _, err := at.WriteTo(sctpPacket(port, clientPort, clientTag, sctpInitAck), peer); err != nil {
		return err
	}
	if n, peer, err = from.ReadFrom(buf); err != nil {
		return fmt.Errorf("the client: %w", err)
	}
	if err := checkSCTP(buf[:n], vport, clientPort, sctpInitAck); err != nil || peer.String() != vip {
		return fmt.Errorf("the client has from %s: %w", peer, err)
	}
	return nil
}

// The userspace datapath's conntrack translates the addresses of SCTP and not its ports.
func TestVirtualSCTP(t *testing.T) {
	if probe.HasSCTP() {
		t.Skip("the kernel has SCTP, so TestVirtual has associations")
	}
	v := newVirtual(t)
	for _, v6 := range []bool{false, true} {
		if err := shakeSCTP(v.pods[0], v.pods[1], virtualPod(0, v6), virtualIP(1, v6), virtualPod(1, v6), 80, 80); err != nil {
			t.Errorf("%s: %v", familyName(v6), err)
		}
	}
	v.dump()
}

// The flows translate associations of SCTP whatever the machine's kernel has.
func TestServiceSCTPFlows(t *testing.T) {
	tr := newTracers(t, 1)[0]
	node := intent.Node{Name: "n", Addresses: []netip.Addr{netip.MustParseAddr("192.168.33.11"), netip.MustParseAddr("fd33::11")}}
	var ports []intent.Port
	for i := range 2 {
		ports = append(ports, intent.Port{
			ID: fmt.Sprint(i, "/eth0"), Namespace: "default", Pod: fmt.Sprint(i), Interface: "eth0", Network: "default", Node: node.Name,
			Addresses: []netip.Addr{address4(10, 244, 1, 10+i), address6(244, 1, 10+i)},
		})
		ports[i].MAC = reserved.PodMAC(ports[i].Addresses[0])
	}
	client, endpoint := ports[0], ports[1]
	v := intent.NodeService{Namespace: "default", Name: "sctp", UID: "1", Router: intent.DefaultRouterName}
	for _, a := range endpoint.Addresses {
		s := &liveService{number: 1}
		v.Ports = append(v.Ports, intent.NodeServicePort{
			Protocol: intent.SCTP, IPv6: a.Is6(), Port: 80, ClusterIP: s.clusterIP(a.Is6()).Addr(), Endpoints: []intent.Endpoint{{Address: a, Port: 8080}},
		})
		p := netip.PrefixFrom(a, map[bool]int{false: 24, true: 64}[a.Is6()]).Masked()
		node.Subnets = append(node.Subnets, intent.Subnet{Network: "default", Prefix: p, Gateway: p.Addr().Next()})
	}
	err := tr.load(t.Context(), stateOf(t, intent.Objects{
		Local: intent.Local{Node: node.Name, Encapsulation: intent.NoEncap, ServiceMode: intent.NativeServices}, Nodes: []intent.Node{node}, Ports: ports,
		NodeServices: []intent.NodeService{v}, ServiceRanges: liveRanges,
	}))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range v.Ports {
		kind, header := "sctp", "nw_src=%s,nw_dst=%s"
		if p.IPv6 {
			kind, header = "sctp6", "ipv6_src=%s,ipv6_dst=%s"
		}
		flow := fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,%s,"+header+",nw_ttl=64,sctp_src=4321,sctp_dst=80,dp_hash=1",
			ofPort(client.ID), client.MAC, datapath.RouterMAC, kind, client.Addresses[i], p.ClusterIP)
		text, err := tr.vswitchd.Call(t.Context(), "ofproto/trace", tr.name, flow, "--ct-next", "trk,new")
		want := fmt.Sprintf("nat(dst=%s)", net.JoinHostPort(endpoint.Addresses[i].String(), "8080"))
		if err != nil || !strings.Contains(text, want) || !strings.Contains(text, fmt.Sprintf("output port is %d", ofPort(endpoint.ID))) {
			t.Errorf("%s: no %s to port %d: %v\n%s", kind, want, ofPort(endpoint.ID), err, text)
		}
	}
}
