// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Dial connects to an API server if the address is the configured one, else, as for a proxy, to the
// address.
func (a *Access) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	a.mu.Lock()
	ours := address == a.configured
	a.mu.Unlock()
	if !ours {
		return a.dial(ctx, network, address)
	}
	conn, at, err := a.race(ctx, network, a.addresses())
	if err != nil {
		return nil, err
	}
	if t, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		t.dialed(at)
	}
	return conn, nil
}

// dialed is the outcome of one address.
type dialed struct {
	conn    net.Conn
	address string
	err     error
}

// race dials the addresses in their order, the next one as soon as one has failed or has not
// answered for a moment, and returns the first connection. A server without power answers nothing,
// and must not hold up the others.
func (a *Access) race(ctx context.Context, network string, addresses []string) (net.Conn, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed)
	running := 0
	next := func() {
		address := addresses[0]
		addresses = addresses[1:]
		running++
		go func() {
			conn, err := a.dial(ctx, network, address)
			select {
			case results <- dialed{conn, address, err}:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close()
				}
			}
		}()
	}
	var errs []error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for running > 0 || len(addresses) > 0 {
		select {
		case <-timer.C:
			if len(addresses) > 0 {
				next()
				timer.Reset(a.stagger)
			}
		case r := <-results:
			running--
			if r.err == nil {
				a.note(r.address, true)
				return r.conn, r.address, nil
			}
			if ctx.Err() == nil {
				a.note(r.address, false)
			}
			errs = append(errs, r.err)
			if len(addresses) > 0 {
				next()
				timer.Reset(a.stagger)
			}
		case <-ctx.Done():
			return nil, "", failure(append(errs, ctx.Err()))
		}
	}
	return nil, "", failure(errs)
}

// failure has the form of net.Dial's errors, by which client-go and others recognize one.
func failure(errs []error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("API server: %w", errors.Join(errs...))}
}

func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
