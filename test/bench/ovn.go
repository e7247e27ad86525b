// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/test/lab"
)

// ovnPods is how many pods come on a node, one after another; ovnConnectRounds are those of
// connections.
const (
	ovnPods          = 100
	ovnConnectRounds = 15
)

// How many times as long as with the backend ovs a pod may take.
const (
	ovnAddBar, ovnAddAim            = 5, 3
	ovnConnectionBar, ovnConnectAim = 0.95, 1
)

// measureOVN compares the backend ovn with the backend ovs, and with OVN that is configured by
// hand.
func measureOVN(ctx context.Context) ([]Result, error) {
	var results []Result
	for _, part := range []struct {
		name string
		take func(context.Context) ([]Result, error)
	}{
		{"pods", measureOVNPods}, {"rows", measureOVNRows}, {"crowd", measureOVNCrowd},
		{"connections", measureOVNConnections},
	} {
		got, err := part.take(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		results = append(results, got...)
	}
	return results, nil
}

// measureOVNPods plugs pods in by turns with each backend. Of each pod's time with OVN, its own
// share is from the port's row in the northbound database until ovn-controller says that the
// interface is installed.
func measureOVNPods(ctx context.Context) ([]Result, error) {
	flat, err := lab.Start(ctx, lab.Options{Nodes: 1})
	defer flat.Close()
	if err != nil {
		return nil, err
	}
	with, err := lab.Start(ctx, lab.Options{Nodes: 1, OVN: true})
	defer with.Close()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := monitorRows(ctx, with.OVN.Remote("nb"), "OVN_Northbound", "Logical_Switch_Port", "name")
	if err != nil {
		return nil, err
	}
	database := "unix:" + with.Nodes[0].OVS.DBSocket()
	interfaces, err := monitorRows(ctx, database, "Open_vSwitch", "Interface", "external_ids")
	if err != nil {
		return nil, err
	}
	var took, share, reference []float64
	for i := range ovnPods {
		name := fmt.Sprint("bench-", i)
		port := fmt.Sprintf("%q", names.Cluster("").Port("lab/"+name+".eth0"))
		began := time.Now()
		if _, err := with.Nodes[0].AddPod(ctx, name); err != nil {
			return nil, err
		}
		took = append(took, milliseconds(time.Since(began)))
		written, err := rows.when(ctx, port)
		if err != nil {
			return nil, err
		}
		installed, err := interfaces.when(ctx, port, `["ovn-installed","true"]`)
		if err != nil {
			return nil, err
		}
		share = append(share, milliseconds(installed.Sub(written)))
		began = time.Now()
		if _, err := flat.Nodes[0].AddPod(ctx, name); err != nil {
			return nil, err
		}
		reference = append(reference, milliseconds(time.Since(began)))
	}
	p50 := percentile(took, 0.5)
	return []Result{
		compared("ovn-add-p50", "ms", p50, percentile(reference, 0.5), ovnAddBar, ovnAddAim, lower),
		beside("ovn-add-share", "ms", percentile(share, 0.5), p50),
		beside("ovn-add-p99", "ms", percentile(took, 0.99), percentile(reference, 0.99)),
	}, nil
}

// rowMonitor notes when a database told of each change of a table.
type rowMonitor struct {
	mu    sync.Mutex
	more  *sync.Cond
	lines []timedLine
	err   error // why there will be no more
}

// timedLine is an update, as JSON.
type timedLine struct {
	text string
	at   time.Time
}

// monitorRows watches a column of a table until ctx ends.
func monitorRows(ctx context.Context, remote, database, table, column string) (*rowMonitor, error) {
	cmd := exec.CommandContext(ctx, "ovsdb-client", "--format=json", "monitor", remote, database, table, column)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", table, err)
	}
	m := &rowMonitor{}
	m.more = sync.NewCond(&m.mu)
	go func() {
		err := m.read(out)
		if ended := cmd.Wait(); ended != nil {
			err = ended
		}
		m.add(timedLine{}, fmt.Errorf("watch %s: %w", table, err))
	}()
	context.AfterFunc(ctx, func() { m.add(timedLine{}, ctx.Err()) })
	return m, nil
}

func (m *rowMonitor) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		m.add(timedLine{line, time.Now()}, nil)
	}
}

func (m *rowMonitor) add(l timedLine, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.lines = append(m.lines, l)
	} else if m.err == nil {
		m.err = err
	}
	m.more.Broadcast()
}

// when waits for the first update with all of the texts.
func (m *rowMonitor) when(ctx context.Context, texts ...string) (time.Time, error) {
	defer context.AfterFunc(ctx, m.more.Broadcast)()
	m.mu.Lock()
	defer m.mu.Unlock()
	for from := 0; ; {
		for _, l := range m.lines[from:] {
			if containsAll(l.text, texts) {
				return l.at, nil
			}
		}
		from = len(m.lines)
		if m.err != nil {
			return time.Time{}, fmt.Errorf("%v did not come: %w", texts, m.err)
		}
		m.more.Wait()
	}
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// measureOVNConnections has a client connect through a ClusterIP of Coelan's with the backend ovn,
// and through a load balancer of OVN's that is made by hand.
func measureOVNConnections(ctx context.Context) ([]Result, error) {
	var all []*contender
	defer func() { closeAll(all) }()
	for _, start := range []func(context.Context) (*contender, error){coelanOnOVN, ovnContender} {
		c, err := start(ctx)
		all = append(all, c)
		if err == nil {
			err = c.await(ctx, serviceAddress)
		}
		if err != nil {
			return nil, err
		}
	}
	all[0].name, all[1].name = "coelan", "ovn"
	crr := traffics[slices.IndexFunc(traffics, func(tr traffic) bool { return tr.name == "crr" })]
	rates, err := takeTurns(ctx, ovnConnectRounds, all, crr, always(serviceAddress))
	if err != nil {
		return nil, err
	}
	return []Result{crr.turns("ovn-crr", rates[0], rates[1]).atLeast(ovnConnectionBar, ovnConnectAim)}, nil
}

// coelanOnOVN is a node with two pods and a Service, with the backend ovn.
func coelanOnOVN(ctx context.Context) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, OVN: true})
	c := &contender{name: "coelan", lab: l}
	if err != nil {
		return c, err
	}
	if err := c.addPods(ctx, l.Nodes[0]); err != nil {
		return c, err
	}
	c.balance()
	return c, nil
}
