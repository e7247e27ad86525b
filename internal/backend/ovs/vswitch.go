// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// ovsTimeout bounds the questions to Open vSwitch that it answers at once if it runs.
const ovsTimeout = 5 * time.Second

// vswitch is this node's Open vSwitch: whether it can be used, its bridge, and when it may forward.
type vswitch struct {
	log      *slog.Logger
	config   config.Config
	intent   *intent.Store
	db       vswitchDatabase
	vswitchd daemon
	// send has the switch execute messages.
	send  func(ctx context.Context, messages []openflow.Message) error
	asked *asked

	mu   sync.Mutex
	info ovsdb.Info
}

// vswitchDatabase is what a vswitch needs of Open vSwitch's database.
type vswitchDatabase interface {
	Info(ctx context.Context) (ovsdb.Info, error)
	Bridges(ctx context.Context) ([]ovsdb.BridgeState, error)
	EnsureBridge(ctx context.Context, b ovsdb.Bridge) error
	EnsurePorts(ctx context.Context, bridge string, ports ...ovsdb.Port) error
	ReleaseFlowRestore(ctx context.Context, arm bool) error
}

// asked says what Open vSwitch does not have to be asked again.
type asked struct {
	// version is true once Open vSwitch was asked what it is since the switch or the database was
	// connected or lost.
	version atomic.Bool
	// bridge is true once the bridge was asked for since the database was connected.
	bridge atomic.Bool
}

// check asks whether Open vSwitch runs, is new enough and forwards. It asks once for each
// connection to the switch: an answer holds as long as the daemon lives.
func (v *vswitch) check(ctx context.Context) (intent.Datapath, error) {
	if local := v.intent.State().Local(); v.asked.version.Load() && local.Node != "" {
		return local.Datapath, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	info, err := v.db.Info(ctx)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	v.info = info
	v.mu.Unlock()
	datapath, err := v.datapath(ctx, info)
	if err != nil {
		return "", err
	}
	if datapath == intent.DatapathSystem {
		if err := v.checkHandlers(ctx); err != nil {
			return "", err
		}
	}
	v.asked.version.Store(true)
	return datapath, nil
}

// datapath is the one to use: what is configured; else what the bridge has already; else the
// kernel's if it is there.
func (v *vswitch) datapath(ctx context.Context, info ovsdb.Info) (intent.Datapath, error) {
	want := string(v.config.Datapath)
	if v.config.Datapath == config.DatapathAuto {
		bridges, err := v.db.Bridges(ctx)
		if err != nil {
			return "", err
		}
		want = ""
		if i := slices.IndexFunc(bridges, func(s ovsdb.BridgeState) bool { return s.Name == v.config.Bridge }); i >= 0 {
			want = bridges[i].Datapath
		}
	}
	datapath, err := info.Datapath(want)
	return intent.Datapath(datapath), err
}

// known is what Open vSwitch said of itself last.
func (v *vswitch) known() ovsdb.Info {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.info
}

// threads finds the numbers of threads in what memory/show prints; ovs-vswitchd leaves out numbers
// that are zero.
var threads = regexp.MustCompile(`\b(handlers|revalidators):(\d+)`)

// checkHandlers finds an ovs-vswitchd that was started within the first 10 seconds of its machine
// and counted no processors: it then has no thread that answers the kernel, and every first packet
// of a flow is lost.
func (v *vswitch) checkHandlers(ctx context.Context) error {
	text, err := v.vswitchd.Call(ctx, "memory/show")
	if err != nil {
		return err
	}
	if withoutHandlers(text) {
		return errors.New("ovs-vswitchd runs without handler threads and drops every new flow, as it does when it is started" +
			" in the first 10 seconds after boot: restart it (systemctl restart openvswitch-switch)")
	}
	return nil
}

// withoutHandlers says so of memory/show's answer. Before a datapath was opened there are no
// threads of either kind.
func withoutHandlers(text string) bool {
	found := map[string]bool{}
	for _, m := range threads.FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[2] != "0"
	}
	return found["revalidators"] && !found["handlers"]
}

// ensureBridge makes the bridge and the ports that are there without any pod. The bridge is asked
// for once after each connection only: the question itself changes the database.
func (v *vswitch) ensureBridge(ctx context.Context, l intent.Local) error {
	if v.asked.bridge.CompareAndSwap(false, true) {
		err := v.db.EnsureBridge(ctx, ovsdb.Bridge{Name: v.config.Bridge, Datapath: string(l.Datapath)})
		if err != nil {
			v.asked.bridge.Store(false)
			return err
		}
	}
	if err := v.db.EnsurePorts(ctx, v.config.Bridge, infrastructure(v.config, l)...); err != nil {
		// The bridge itself may be gone.
		v.asked.bridge.Store(false)
		return err
	}
	return nil
}

// release has a switch that holds its flows back forward, when all flows are in place.
func (v *vswitch) release(ctx context.Context) error {
	if err := v.renewConntrack(ctx); err != nil {
		return err
	}
	arm, err := v.mayHoldBack(ctx)
	if err != nil {
		return err
	}
	if err := v.db.ReleaseFlowRestore(ctx, arm); err != nil {
		return fmt.Errorf("let Open vSwitch forward: %w", err)
	}
	return nil
}

// mayHoldBack says whether the next ovs-vswitchd may forward by the kernel's old flows alone until
// the agent has given it the new ones. That holds back all bridges, at boot until the agent is
// started: not where others have bridges too, one of which may be the node's own way to its API
// server. The userspace datapath has no old flows to keep.
func (v *vswitch) mayHoldBack(ctx context.Context) (bool, error) {
	if v.intent.State().Local().Datapath != intent.DatapathSystem {
		return false, nil
	}
	bridges, err := v.db.Bridges(ctx)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(bridges, func(b ovsdb.BridgeState) bool {
		return !b.Own || b.ExternalIDs[cards.ID] != ""
	}), nil
}

// uplinkBridge returns the bridge with the node's address on its local port; nil if it is on an
// ordinary interface. The userspace datapath can send tunnel packets from such a port only.
func (v *vswitch) uplinkBridge(ctx context.Context, l intent.Local, uplink hostnet.Uplink) (*ovsdb.BridgeState, error) {
	bridges, err := v.db.Bridges(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == uplink.Name }); i >= 0 {
		return &bridges[i], nil
	}
	if l.Datapath == intent.DatapathNetdev && l.Encapsulation.Tunneled() {
		return nil, fmt.Errorf("node address %s is on interface %s, which is no Open vSwitch bridge: with datapath netdev and"+
			" encapsulation %s it has to be on the local port of a bridge with datapath_type=netdev that holds the network card",
			l.TunnelIP, uplink.Name, l.Encapsulation)
	}
	return nil, nil
}
