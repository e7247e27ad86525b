// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// Extent says when a load ends: after a time, or, if Units is set, after so many bytes of a stream
// or transactions. A fixed number costs the same number of instructions each time.
type Extent struct {
	Time  time.Duration
	Units int
}

// over reports whether the load ends that began at a time and has done n units.
func (e Extent) over(start time.Time, n int) bool {
	if e.Units > 0 {
		return n >= e.Units
	}
	return time.Since(start) >= e.Time
}

// Stream writes to a Discard server over one connection and returns the rate in bytes per second,
// as the receiver had them.
func Stream(ctx context.Context, from Netns, dst netip.AddrPort, e Extent) (float64, error) {
	c, err := Dial(ctx, from, dst)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(e.Time + 10*AnswerTimeout))
	block := make([]byte, 1<<17)
	start, sent := time.Now(), 0
	for !e.over(start, sent) {
		n, err := c.Write(block)
		if err != nil {
			return 0, err
		}
		sent += n
	}
	if err := c.CloseWrite(); err != nil {
		return 0, err
	}
	// The server closes when it has read everything.
	if _, err := io.Copy(io.Discard, c); err != nil {
		return 0, err
	}
	return float64(sent) / time.Since(start).Seconds(), nil
}

// RequestResponse sends one byte to an Echo server and waits for it, over one
// connection, and returns the transactions per second (TCP_RR).
func RequestResponse(ctx context.Context, from Netns, dst netip.AddrPort, e Extent) (float64, error) {
	c, err := Dial(ctx, from, dst)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(e.Time + 10*AnswerTimeout))
	start, n, one := time.Now(), 0, []byte{1}
	for !e.over(start, n) {
		if _, err := c.Write(one); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, one); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// ConnectRequestResponse opens a connection to an Answer server for each byte
// that it sends, and returns the transactions per second (TCP_CRR). One connection
// in a thousand may fail: kube-proxy's rules lose or refuse one at times, and Open vSwitch's
// userspace datapath leaves one without an answer.
func ConnectRequestResponse(ctx context.Context, from Netns, dst netip.AddrPort, e Extent) (rate float64, err error) {
	err = from.Do(func() error {
		start, n, failed := time.Now(), 0, 0
		var last error
		dialer := net.Dialer{Timeout: AnswerTimeout, KeepAlive: -1}
		for !e.over(start, n) {
			if err := oneAnswer(ctx, dialer, dst); err != nil {
				if failed++; 1000*(failed-1) > n || ctx.Err() != nil {
					return err
				}
				last = err
				continue
			}
			n++
		}
		if n == 0 {
			return fmt.Errorf("no connection in %s: %w", e.Time, last)
		}
		rate = float64(n) / time.Since(start).Seconds()
		return nil
	})
	return rate, err
}

// oneAnswer has one byte answered over a connection of its own.
func oneAnswer(ctx context.Context, dialer net.Dialer, dst netip.AddrPort) error {
	c, err := dialer.DialContext(ctx, network("tcp", dst.Addr()), dst.String())
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(AnswerTimeout))
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	heard, err := io.ReadAll(c)
	if err == nil && len(heard) != 1 {
		err = fmt.Errorf("%d bytes came back", len(heard))
	}
	return err
}

// Answer reads one byte, sends it back and closes: the server's end waits for
// late packets, so the client does not run out of ports.
func Answer(c net.Conn) {
	one := make([]byte, 1)
	if _, err := io.ReadFull(c, one); err == nil {
		_, _ = c.Write(one) // the client sees it if this fails
	}
}
