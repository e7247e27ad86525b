// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
)

// PortAdded says that the switch reported a port with its OpenFlow number
// (OFPT_PORT_STATUS). Calling it is optional, but ovs-vswitchd reports a port as soon as it
// is open, and writes it into the database only when it has gone through all others: with it
// EnsurePorts returns that much earlier.
func (c *Client) PortAdded(name string, ofport int) {
	c.mu.Lock()
	a := c.awaited[name]
	if a != nil {
		a.ofport = ofport
	}
	c.mu.Unlock()
	if a != nil {
		c.changed.Send()
	}
}

// expect takes note of what PortAdded says of ports until the function that it
// returns is called.
func (c *Client) expect(ports []Port) (forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ports {
		if c.awaited[p.Name] == nil {
			c.awaited[p.Name] = &awaited{}
		}
		c.awaited[p.Name].calls++
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range ports {
			if c.awaited[p.Name].calls--; c.awaited[p.Name].calls == 0 {
				delete(c.awaited, p.Name)
			}
		}
	}
}

// reported reports whether the switch said that it has p with its number.
func (c *Client) reported(p Port) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.awaited[p.Name]
	return a != nil && a.ofport == p.OFPort && p.OFPort != 0
}

// renumberings is how often ovs-vswitchd is asked again for a port's number.
const renumberings = 3

// awaitNumber waits until ovs-vswitchd has opened the port with its number. On the
// kernel's datapath it may give another one: the datapath's own number of an
// interface that has just vanished goes to the next that comes, and
// ovs-vswitchd, before it has heard of the former, takes the one for the other.
// When it reads its configuration again, it sees that the number is wrong.
func (c *Client) awaitNumber(ctx context.Context, s *session, p Port, cfg int) error {
	for tries := 0; ; tries++ {
		err := c.awaitPort(ctx, s, p, cfg)
		var wrong *numberError
		if !errors.As(err, &wrong) || tries == renumberings {
			return err
		}
		if cfg, err = s.configure(ctx, nil); err != nil {
			return err
		}
	}
}

// numberError says that a port has another number than it asked for.
type numberError struct{ want, got int }

func (e *numberError) Error() string {
	return fmt.Sprintf("OpenFlow port %d was asked for but ovs-vswitchd gave %d: another port has it", e.want, e.got)
}

// awaitPort waits until ovs-vswitchd has opened the port, or could not, which
// is known at the latest when it has applied configuration cfg.
func (c *Client) awaitPort(ctx context.Context, s *session, p Port, cfg int) error {
	err := c.until(ctx, s, func() (bool, error) {
		if c.reported(p) {
			return true, nil
		}
		row := s.iface(p.Name)
		if row == nil {
			return false, errors.New("was removed by somebody else")
		}
		if applied, err := s.hasApplied(cfg); !applied {
			return false, err
		}
		// The row may be older than the news that it was applied.
		if row = s.iface(p.Name); row == nil {
			return false, errors.New("was removed by somebody else")
		}
		return p.outcome(portState("", row))
	})
	if ctx.Err() != nil {
		return fmt.Errorf("ovs-vswitchd did not open it: is it running? %w", err)
	}
	return err
}

// Tried waits until ovs-vswitchd has opened those of the ports that are there, or could not. The
// switch reports a port earlier than the database has its number: until then Ports has 0.
func (c *Client) Tried(ctx context.Context, names ...string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		for _, name := range names {
			err := c.until(ctx, s, func() (bool, error) {
				row := s.iface(name)
				return row == nil || portState("", row).Actual != 0, nil
			})
			if ctx.Err() != nil {
				err = fmt.Errorf("ovs-vswitchd did not open it: is it running? %w", err)
			}
			if err != nil {
				return portError(name, err)
			}
		}
		return nil
	})
}

// outcome is what became of p when ovs-vswitchd had come to it.
func (p Port) outcome(st PortState) (ready bool, err error) {
	switch {
	case st.Ready():
		return true, nil
	case st.Error != "":
		return false, fmt.Errorf("ovs-vswitchd: %s", st.Error)
	case st.Actual > 0:
		return false, &numberError{want: p.OFPort, got: st.Actual}
	}
	return false, errors.New("ovs-vswitchd gave it no OpenFlow port and no reason: see its log")
}
