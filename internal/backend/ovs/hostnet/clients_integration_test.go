// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// served are the ports with listeners in both namespaces.
var served = []int{
	port, port + 1, port + 2, port + 3, port + 4, port + 5, port + 6, nodePort, nodePort + 1, nodePort + 4, nodePort + 5, refused,
	8080, 9000, marked, tunnelPort, memberPort, streamPort,
}

// serve answers at all ports with the name of the namespace, the address that was
// asked and the client's.
func serve(t *testing.T, ns string) {
	t.Helper()
	serveAt(t, ns, served...)
	must(t, in(ns, func() {
		for _, network := range []string{"ip4:132", "ip6:132"} {
			c, err := net.ListenPacket(network, "")
			must(t, err)
			serveDatagrams(t, network == "ip6:132", c, func(b []byte, asked net.IP, from net.Addr) []byte {
				return acknowledge(b, func(p int) string { return answerOf(ns, asked, p, from) })
			})
		}
	}))
}

// serveAt does so at some ports of TCP and UDP.
func serveAt(t *testing.T, ns string, ports ...int) {
	t.Helper()
	must(t, in(ns, func() {
		for _, p := range ports {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", p))
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			go serveTCP(l, ns)
			for _, network := range []string{"udp4", "udp6"} {
				c, err := net.ListenPacket(network, fmt.Sprintf(":%d", p))
				must(t, err)
				serveDatagrams(t, network == "udp6", c, func(b []byte, asked net.IP, from net.Addr) []byte {
					return []byte(answerOf(ns, asked, p, from))
				})
			}
		}
	}))
}

func answerOf(ns string, asked net.IP, p int, from net.Addr) string {
	answer := fmt.Sprintf("%s %s %s", ns, netip.AddrPortFrom(addr(asked), uint16(p)), host(from))
	if strings.HasSuffix(from.String(), fmt.Sprintf(":%d", chosen)) {
		answer += " from the port chosen"
	}
	return answer
}

// host is the address without a port, which not all have.
func host(a net.Addr) string {
	if h, _, err := net.SplitHostPort(a.String()); err == nil {
		return h
	}
	return a.String()
}

func serveTCP(l net.Listener, ns string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		a := c.LocalAddr().(*net.TCPAddr)
		_, _ = c.Write([]byte(answerOf(ns, a.IP, a.Port, c.RemoteAddr())))
		go func() {
			// Until the client ends it, the connection is there.
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}()
	}
}

// serveDatagrams answers from the address that was asked.
func serveDatagrams(t *testing.T, v6 bool, c net.PacketConn, answer func(b []byte, asked net.IP, from net.Addr) []byte) {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	b := make([]byte, 1500)
	var once func() error
	if v6 {
		p := ipv6.NewPacketConn(c)
		must(t, p.SetControlMessage(ipv6.FlagDst, true))
		once = func() error {
			n, cm, from, err := p.ReadFrom(b)
			if err != nil {
				return err
			}
			if a := answer(b[:n], cm.Dst, from); a != nil {
				_, _ = p.WriteTo(a, &ipv6.ControlMessage{Src: cm.Dst}, from)
			}
			return nil
		}
	} else {
		p := ipv4.NewPacketConn(c)
		must(t, p.SetControlMessage(ipv4.FlagDst, true))
		once = func() error {
			n, cm, from, err := p.ReadFrom(b)
			if err != nil {
				return err
			}
			if a := answer(b[:n], cm.Dst, from); a != nil {
				_, _ = p.WriteTo(a, &ipv4.ControlMessage{Src: cm.Dst}, from)
			}
			return nil
		}
	}
	go func() {
		for {
			if err := once(); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
}

// The kernel of these tests may have no SCTP, only its conntrack. So the handshake's two first
// packets are made by hand (RFC 9260): the second one has the answer as an unknown parameter.
const (
	sctpInit        = 1
	sctpAcknowledge = 2
	sctpHeader      = 12
	sctpChunk       = 20
)

func sctpPacket(from, to uint16, tag uint32, chunk byte, text string) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = binary.BigEndian.AppendUint32(b, tag)
	b = append(b, 0, 0, 0, 0, chunk, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(sctpChunk+len(text)))
	b = append(b, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9)
	b = append(b, text...)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// acknowledge answers the first packet of an association.
func acknowledge(b []byte, answer func(port int) string) []byte {
	if len(b) < sctpHeader+sctpChunk || b[sctpHeader] != sctpInit {
		return nil
	}
	from, to := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	text := answer(int(to))
	text += strings.Repeat(" ", (4-len(text)%4)%4)
	parameter := binary.BigEndian.AppendUint16([]byte{0x80, 1}, uint16(4+len(text)))
	return sctpPacket(to, from, 7, sctpAcknowledge, string(parameter)+text)
}

// hurry is how long clients wait that will often hear nothing.
const hurry = 250 * time.Millisecond

// patience is how long a client waits for an answer.
var patience = hurry

// ask says what a client hears: the answer, "refused" or "silence". from may have a
// port, or be empty.
func ask(ns, network, from, to string, p int) (answer string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := in(ns, func() { answer = hear(ctx, network, from, to, p) })
	if err != nil {
		return err.Error()
	}
	return answer
}

func hear(ctx context.Context, network, from, to string, p int) string {
	c, err := dial(ctx, network, from, to, p)
	var answer string
	if err == nil {
		defer func() { _ = c.Close() }()
		if stream, ok := c.(*net.TCPConn); ok {
			_ = stream.SetLinger(0) // the port that a client chose is free again at once
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		answer, err = converse(c, network, p)
	}
	var slow net.Error
	switch {
	case err == nil:
		return answer
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EPROTO):
		// A sender of datagrams on the same host hears the second of a rule that refuses them, the
		// others are from a kernel without the protocol.
		return "refused"
	case errors.As(err, &slow) && slow.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return "silence"
	}
	return err.Error()
}

func dial(ctx context.Context, network, from, to string, p int) (net.Conn, error) {
	var d net.Dialer
	if from != "" {
		a, err := netip.ParseAddrPort(from)
		if err != nil {
			a = netip.AddrPortFrom(netip.MustParseAddr(from), 0)
		}
		switch network {
		case "tcp":
			d.LocalAddr = net.TCPAddrFromAddrPort(a)
		case "udp":
			d.LocalAddr = net.UDPAddrFromAddrPort(a)
		default:
			d.LocalAddr = &net.IPAddr{IP: a.Addr().AsSlice()}
		}
	}
	if network == "sctp" {
		return d.DialContext(ctx, map[bool]string{true: "ip4:132", false: "ip6:132"}[netip.MustParseAddr(to).Is4()], to)
	}
	return d.DialContext(ctx, network, net.JoinHostPort(to, strconv.Itoa(p)))
}

func converse(c net.Conn, network string, p int) (string, error) {
	sport := uint16(10000 + rand.IntN(20000))
	switch network {
	case "udp":
		if _, err := c.Write([]byte("?")); err != nil {
			return "", err
		}
	case "sctp":
		if _, err := c.Write(sctpPacket(sport, uint16(p), 0, sctpInit, "")); err != nil {
			return "", err
		}
	}
	b := make([]byte, 1500)
	for {
		n, err := c.Read(b)
		if err != nil || network != "sctp" {
			return string(b[:n]), err
		}
		answer := b[:n]
		if network == "sctp" && n > 0 && answer[0]>>4 == 4 && c.LocalAddr().(*net.IPAddr).IP.To4() != nil {
			// Raw sockets of IPv4 show the IP header.
			answer = answer[int(answer[0]&0xf)*4:]
		}
		const parameter = 4
		if len(answer) > sctpHeader+sctpChunk+parameter && answer[sctpHeader] == sctpAcknowledge && binary.BigEndian.Uint16(answer[2:]) == sport {
			return strings.TrimRight(string(answer[sctpHeader+sctpChunk+parameter:]), " "), nil
		}
	}
}
