// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// Flood sends frames for as long as it runs.
type Flood struct {
	wire *Wire
	end  chan struct{}
	wg   sync.WaitGroup
	sent int
	err  error
}

// floodTick is how often a Flood sends what is due.
const floodTick = 2 * time.Millisecond

// StartFlood sends frames from an interface, of which next makes the nth, so many a second. What a
// busy machine keeps it from sending in time is left out.
func StartFlood(ns Netns, link string, perSecond int, next func(n int) Frame) (*Flood, error) {
	w := &Wire{} // nothing listens: the answers are of no interest
	if err := ns.Do(func() error { return w.open(link) }); err != nil {
		return nil, fmt.Errorf("raw socket on %s: %w", link, err)
	}
	f := &Flood{wire: w, end: make(chan struct{})}
	f.wg.Go(func() { f.err = f.run(perSecond, next) })
	return f, nil
}

func (f *Flood) run(perSecond int, next func(n int) Frame) error {
	tick := time.NewTicker(floodTick)
	defer tick.Stop()
	each := max(1, perSecond*int(floodTick)/int(time.Second))
	for {
		for range each {
			err := f.wire.Send(next(f.sent))
			if err != nil && !errors.Is(err, syscall.ENOBUFS) {
				return err
			}
			f.sent++
		}
		select {
		case <-f.end:
			return nil
		case <-tick.C:
		}
	}
}

// Stop ends the flood, and returns how many frames it has sent.
func (f *Flood) Stop() (sent int, err error) {
	close(f.end)
	f.wg.Wait()
	f.wire.Close()
	return f.sent, f.err
}
