// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Ping is a series of echo requests.
type Ping struct {
	Dst      netip.Addr
	Count    int           // 0: 1
	Interval time.Duration // between requests; 0: each after the answer to the one before
	Size     int           // bytes of data after the ICMP header; at least 8
	TTL      int           // 0: the kernel's
	// MayFragment lets routers, and the sender, fragment; else DF is set and the
	// path MTU that the kernel learned is not looked at.
	MayFragment bool
	// Wait bounds the wait for each answer; 0: 2 s.
	Wait time.Duration
}

// PingResult is what came back.
type PingResult struct {
	Sent    int
	Replies []Reply
	Errors  []ICMPError
	// SendError is why a request could not be sent, such as its size.
	SendError error
}

// Reply is one echo reply.
type Reply struct {
	Seq int
	TTL int
	RTT time.Duration
}

// ICMPError is an error message about one of the requests.
type ICMPError struct {
	Seq        int
	From       netip.Addr
	Type, Code int
	MTU        int // of "fragmentation needed" and "packet too big"
}

// String names the error as a test's output should.
func (e ICMPError) String() string {
	return fmt.Sprintf("from %s type %d code %d mtu %d", e.From, e.Type, e.Code, e.MTU)
}

// Lost is the number of requests that no reply came back for.
func (r PingResult) Lost() int { return r.Sent - len(r.Replies) }

// icmpFamily is what differs between ICMP for IPv4 and for IPv6.
type icmpFamily struct {
	listen      string
	protocol    int // of the IP header
	request     icmp.Type
	reply       icmp.Type
	headerBytes int // of the IP header inside an error
	any         string
}

var (
	icmp4 = icmpFamily{"ip4:icmp", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply, 20, "0.0.0.0"}
	icmp6 = icmpFamily{"ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 40, "::"}
)

var lastPing atomic.Uint32

// pinger is a running Ping.
type pinger struct {
	Ping
	family icmpFamily
	conn   *icmp.PacketConn
	id     int
	sentAt []time.Time
	result PingResult
}

// Run sends the requests from a namespace and collects what comes back. The
// error means that the probe itself failed.
func (p Ping) Run(ctx context.Context, from Netns) (PingResult, error) {
	p.Count, p.Size = max(p.Count, 1), max(p.Size, 8)
	if p.Wait == 0 {
		p.Wait = AnswerTimeout
	}
	r := &pinger{Ping: p, family: icmp4, id: (os.Getpid() + int(lastPing.Add(1))) & 0xffff}
	if p.Dst.Is6() {
		r.family = icmp6
	}
	if err := from.Do(r.open); err != nil {
		return PingResult{}, fmt.Errorf("ping %s: %w", p.Dst, err)
	}
	defer r.conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = r.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := r.run(); err != nil {
		return r.result, fmt.Errorf("ping %s: %w", p.Dst, err)
	}
	return r.result, ctx.Err()
}

func (r *pinger) open() (err error) {
	if r.conn, err = icmp.ListenPacket(r.family.listen, r.family.any); err != nil {
		return err
	}
	if r.Dst.Is4() {
		err = r.conn.IPv4PacketConn().SetControlMessage(ipv4.FlagTTL, true)
		if r.TTL > 0 {
			err = errors.Join(err, r.conn.IPv4PacketConn().SetTTL(r.TTL))
		}
	} else {
		err = r.conn.IPv6PacketConn().SetControlMessage(ipv6.FlagHopLimit, true)
		if r.TTL > 0 {
			err = errors.Join(err, r.conn.IPv6PacketConn().SetHopLimit(r.TTL))
		}
	}
	return errors.Join(err, r.setDiscovery())
}

// setDiscovery says whether packets may be fragmented.
func (r *pinger) setDiscovery() error {
	raw, err := r.rawConn()
	if err != nil {
		return err
	}
	var opErr error
	err = raw.Control(func(fd uintptr) {
		mode := unix.IP_PMTUDISC_PROBE
		if r.MayFragment {
			mode = unix.IP_PMTUDISC_DONT
		}
		if r.Dst.Is4() {
			opErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, mode)
		} else {
			opErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, mode)
		}
	})
	return errors.Join(err, opErr)
}

func (r *pinger) rawConn() (interface{ Control(func(uintptr)) error }, error) {
	var c net.PacketConn
	if r.Dst.Is4() {
		c = r.conn.IPv4PacketConn().PacketConn
	} else {
		c = r.conn.IPv6PacketConn().PacketConn
	}
	return c.(*net.IPConn).SyscallConn()
}

// run sends and receives by turns: while it waits for the time of the next
// request it reads.
func (r *pinger) run() error {
	for seq := range r.Count {
		if err := r.send(seq); err != nil {
			r.result.SendError = err
			continue
		}
		until := r.sentAt[seq].Add(r.Wait)
		if r.Interval > 0 && seq < r.Count-1 {
			until = r.sentAt[0].Add(time.Duration(seq+1) * r.Interval)
		}
		if err := r.receive(until, r.Interval > 0 && seq < r.Count-1); err != nil {
			return err
		}
	}
	return nil
}

func (r *pinger) send(seq int) error {
	for len(r.sentAt) <= seq {
		r.sentAt = append(r.sentAt, time.Now())
	}
	m := icmp.Message{Type: r.family.request,
		Body: &icmp.Echo{ID: r.id, Seq: seq, Data: bytes.Repeat([]byte{'c'}, r.Size)}}
	data, err := m.Marshal(nil) // the kernel fills in ICMPv6's checksum
	if err != nil {
		return err
	}
	if _, err := r.conn.WriteTo(data, &net.IPAddr{IP: r.Dst.AsSlice(), Zone: r.Dst.Zone()}); err != nil {
		return err
	}
	r.result.Sent++
	return nil
}

// receive reads until a time; unless it is to use all of that time, only until
// every request has its answer.
func (r *pinger) receive(until time.Time, all bool) error {
	if err := r.conn.SetReadDeadline(until); err != nil {
		return err
	}
	buf := make([]byte, 70_000)
	for all || len(r.result.Replies)+len(r.result.Errors) < r.result.Sent {
		n, ttl, from, err := r.read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		r.take(buf[:n], ttl, from)
	}
	return nil
}

func (r *pinger) read(buf []byte) (n, ttl int, from netip.Addr, err error) {
	var src net.Addr
	if r.Dst.Is4() {
		var cm *ipv4.ControlMessage
		if n, cm, src, err = r.conn.IPv4PacketConn().ReadFrom(buf); cm != nil {
			ttl = cm.TTL
		}
	} else {
		var cm *ipv6.ControlMessage
		if n, cm, src, err = r.conn.IPv6PacketConn().ReadFrom(buf); cm != nil {
			ttl = cm.HopLimit
		}
	}
	if ip, ok := src.(*net.IPAddr); ok {
		from, _ = netip.AddrFromSlice(ip.IP)
	}
	return n, ttl, from.Unmap(), err
}

// take looks whether a message is about one of the requests.
func (r *pinger) take(data []byte, ttl int, from netip.Addr) {
	m, err := icmp.ParseMessage(r.family.protocol, data)
	if err != nil {
		return
	}
	if echo, ok := m.Body.(*icmp.Echo); ok {
		if m.Type == r.family.reply && echo.ID == r.id && echo.Seq < len(r.sentAt) {
			r.result.Replies = append(r.result.Replies, Reply{echo.Seq, ttl, time.Since(r.sentAt[echo.Seq])})
		}
		return
	}
	// An error: 4 bytes of header, 4 of which some types use the last two or
	// all for an MTU, then the packet that it is about.
	inner := r.family.headerBytes + 8
	if len(data) < inner+8 {
		return
	}
	echo := data[inner:]
	if int(binary.BigEndian.Uint16(echo[4:])) != r.id {
		return
	}
	r.result.Errors = append(r.result.Errors, ICMPError{
		Seq: int(binary.BigEndian.Uint16(echo[6:])), From: from,
		Type: int(data[0]), Code: int(data[1]), MTU: int(binary.BigEndian.Uint16(data[6:])),
	})
}
