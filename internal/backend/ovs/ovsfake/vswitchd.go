// SPDX-License-Identifier: Apache-2.0

package ovsfake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// vswitchd is what ovs-vswitchd does about the database.
type vswitchd struct {
	// stopped keeps it from looking.
	stopped bool
	// broken are interfaces that it cannot open, with the reason; taken are OpenFlow ports that it
	// gives to none.
	broken map[string]string
	taken  map[int]bool
	// unmakable are the types of datapaths that it cannot make.
	unmakable map[string]bool
	// logical are the names of the ports that an ovn-controller connects; nil: there is none.
	logical map[string]bool
}

func newVswitchd() vswitchd {
	return vswitchd{broken: map[string]string{}, taken: map[int]bool{}, unmakable: map[string]bool{}}
}

// local is the OpenFlow port of a bridge's own interface in the database.
const local = 65534

// StopVswitchd keeps ovs-vswitchd from seeing changes until StartVswitchd.
func (o *OVS) StopVswitchd() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vswitchd.stopped = true
}

// StartVswitchd has ovs-vswitchd apply what it has missed.
func (o *OVS) StartVswitchd() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vswitchd.stopped = false
	return o.configure()
}

// Break keeps ovs-vswitchd from opening an interface; no reason: it can open it again.
func (o *OVS) Break(name, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vswitchd.broken[name] = reason
	if reason == "" {
		delete(o.vswitchd.broken, name)
	}
}

// Take keeps ovs-vswitchd from giving an OpenFlow port to an interface that asks for it.
func (o *OVS) Take(ofport int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vswitchd.taken[ofport] = true
}

// CannotMake has ovs-vswitchd fail to make bridges of a type of datapath.
func (o *OVS) CannotMake(datapath string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vswitchd.unmakable[datapath] = true
}

// ConnectOVN has an ovn-controller connect interfaces by the names of their logical ports, and say
// so.
func (o *OVS) ConnectOVN(logical ...string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vswitchd.logical = map[string]bool{}
	for _, name := range logical {
		o.vswitchd.logical[name] = true
	}
	return o.configure()
}

// SetExternalIDs replaces those of the whole Open vSwitch, as an administrator does.
func (o *OVS) SetExternalIDs(ids map[string]string) error {
	value, err := ovsdb.NewOvsMap(ids)
	if err != nil {
		return err
	}
	return o.change([]ovsdb.Operation{
		{Op: ovsdb.OperationUpdate, Table: "Open_vSwitch", Row: ovsdb.Row{"external_ids": value}},
	})
}

// installed says of interfaces that OVN has connected them.
func (o *OVS) installed() (ops []ovsdb.Operation, err error) {
	interfaces, err := o.db.List(rows.Database, "Interface")
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(interfaces)) {
		ids := maps.Clone(interfaces[id].(*rows.Interface).ExternalIDs)
		if !o.vswitchd.logical[ids["iface-id"]] || ids["ovn-installed"] == "true" {
			continue
		}
		ids["ovn-installed"] = "true"
		value, err := ovsdb.NewOvsMap(ids)
		if err != nil {
			return nil, err
		}
		ops = append(ops, update("Interface", id, ovsdb.Row{"external_ids": value}))
	}
	return ops, nil
}

// configure opens interfaces and reports that the newest configuration is applied. It needs mu to
// be held.
func (o *OVS) configure() error {
	if o.vswitchd.stopped {
		return nil
	}
	roots, err := o.db.List(rows.Database, "Open_vSwitch")
	if err != nil {
		return err
	}
	ops, err := o.open()
	if err != nil {
		return err
	}
	installed, err := o.installed()
	if err != nil {
		return err
	}
	ops = append(ops, installed...)
	for id, m := range roots {
		if r := m.(*rows.OpenVSwitch); r.CurCfg != r.NextCfg {
			ops = append(ops, update("Open_vSwitch", id, ovsdb.Row{"cur_cfg": r.NextCfg}))
		}
	}
	if len(ops) == 0 {
		return nil
	}
	return o.execute(ops)
}

// execute commits operations of the fake's own. It needs mu to be held.
func (o *OVS) execute(ops []ovsdb.Operation) error {
	text, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	// The transaction expects values as they are on the wire.
	var received []ovsdb.Operation
	if err := json.Unmarshal(text, &received); err != nil {
		return err
	}
	results, err := o.commit(received)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r != nil && r.Error != "" {
			return fmt.Errorf("%s: %s", r.Error, r.Details)
		}
	}
	return nil
}

// open gives interfaces their OpenFlow ports, first those that ask for one.
func (o *OVS) open() (ops []ovsdb.Operation, err error) {
	interfaces, err := o.db.List(rows.Database, "Interface")
	if err != nil {
		return nil, err
	}
	placed, err := o.placed()
	if err != nil {
		return nil, err
	}
	used := map[string]map[int]bool{} // by bridge
	for id, b := range placed {
		if used[b.Name] == nil {
			used[b.Name] = maps.Clone(o.vswitchd.taken)
		}
		if p := interfaces[id].(*rows.Interface).OFPort; p != nil {
			used[b.Name][*p] = true
		}
	}
	ids := slices.Sorted(maps.Keys(placed))
	slices.SortStableFunc(ids, func(a, b string) int {
		return cmp.Compare(asks(interfaces[b]), asks(interfaces[a]))
	})
	for _, id := range ids {
		i := interfaces[id].(*rows.Interface)
		isLocal := placed[id].Name == i.Name
		reason, broken := o.vswitchd.broken[i.Name]
		row := ovsdb.Row{"mac_in_use": set("aa:bb:cc:00:00:01"), "error": set(), "link_state": set("up")}
		switch {
		case isLocal && o.vswitchd.unmakable[placed[id].DatapathType]:
			continue
		case isLocal && i.OFPort == nil:
			row["ofport"] = local
		case isLocal:
			continue
		case broken && i.Error == nil:
			row = ovsdb.Row{"ofport": -1, "error": set(reason)}
		case broken || i.OFPort != nil && *i.OFPort > 0 && (i.OFPortRequest == nil || *i.OFPortRequest == *i.OFPort):
			continue
		default:
			row["ofport"] = choose(i.OFPortRequest, used[placed[id].Name])
		}
		if i.MTURequest != nil {
			row["mtu"] = *i.MTURequest
		}
		ops = append(ops, update("Interface", id, row))
	}
	return ops, nil
}

// asks is 1 for an interface that asks for an OpenFlow port, else 0.
func asks(m model.Model) int {
	if m.(*rows.Interface).OFPortRequest == nil {
		return 0
	}
	return 1
}

// placed are the bridges of interfaces, by the interfaces' UUIDs.
func (o *OVS) placed() (map[string]*rows.Bridge, error) {
	bridges, err := o.db.List(rows.Database, "Bridge")
	if err != nil {
		return nil, err
	}
	ports, err := o.db.List(rows.Database, "Port")
	if err != nil {
		return nil, err
	}
	placed := map[string]*rows.Bridge{}
	for _, m := range bridges {
		b := m.(*rows.Bridge)
		for _, port := range b.Ports {
			for _, iface := range ports[port].(*rows.Port).Interfaces {
				placed[iface] = b
			}
		}
	}
	return placed, nil
}

// Ports are the names of a bridge's ports without its own, in order; none if there is no bridge.
func (o *OVS) Ports(bridge string) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	interfaces, err := o.db.List(rows.Database, "Interface")
	if err != nil {
		return nil, err
	}
	placed, err := o.placed()
	var names []string
	for id, b := range placed {
		if name := interfaces[id].(*rows.Interface).Name; b.Name == bridge && name != bridge {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// choose gives the OpenFlow port that is asked for if it is free.
func choose(request *int, used map[int]bool) int {
	if request != nil && !used[*request] {
		used[*request] = true
		return *request
	}
	for p := 1; ; p++ {
		if !used[p] {
			used[p] = true
			return p
		}
	}
}

func update(table, id string, row ovsdb.Row) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationUpdate, Table: table, Row: row,
		Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: id})},
	}
}

// AddBridge makes a bridge that is not Coelan's, with ports by name.
func (o *OVS) AddBridge(name, datapath string, ports ...string) error {
	var ops []ovsdb.Operation
	ids := []string{}
	for n, port := range append([]string{name}, ports...) {
		iface, id := fmt.Sprintf("iface%d", n), fmt.Sprintf("port%d", n)
		typ := ""
		if port == name {
			typ = "internal"
		}
		ops = append(ops,
			insert("Interface", iface, ovsdb.Row{"name": port, "type": typ}),
			insert("Port", id, ovsdb.Row{"name": port, "interfaces": references(iface)}))
		ids = append(ids, id)
	}
	ops = append(ops, insert("Bridge", "bridge",
		ovsdb.Row{"name": name, "datapath_type": datapath, "ports": references(ids...)}),
		ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "Open_vSwitch", Mutations: []ovsdb.Mutation{
			*ovsdb.NewMutation("bridges", ovsdb.MutateOperationInsert, references("bridge")),
		}})
	return o.change(ops)
}

// AddPort plugs an interface into a bridge, as a virtual machine's owner does.
func (o *OVS) AddPort(bridge, name string, externalIDs map[string]string) error {
	ids, err := ovsdb.NewOvsMap(externalIDs)
	if err != nil {
		return err
	}
	return o.change([]ovsdb.Operation{
		insert("Interface", "iface", ovsdb.Row{"name": name, "external_ids": ids}),
		insert("Port", "port", ovsdb.Row{"name": name, "interfaces": references("iface")}),
		{
			Op: ovsdb.OperationMutate, Table: "Bridge", Where: named(bridge), Mutations: []ovsdb.Mutation{
				*ovsdb.NewMutation("ports", ovsdb.MutateOperationInsert, references("port")),
			},
		},
	})
}

// AddController gives a bridge a controller that is not Coelan's.
func (o *OVS) AddController(bridge, target string) error {
	return o.change([]ovsdb.Operation{
		insert("Controller", "controller", ovsdb.Row{"target": target}),
		{
			Op: ovsdb.OperationMutate, Table: "Bridge", Where: named(bridge), Mutations: []ovsdb.Mutation{
				*ovsdb.NewMutation("controller", ovsdb.MutateOperationInsert, references("controller")),
			},
		},
	})
}

// AddManager gives the database a manager that is not Coelan's.
func (o *OVS) AddManager(target string) error {
	return o.change([]ovsdb.Operation{
		insert("Manager", "manager", ovsdb.Row{"target": target}),
		{Op: ovsdb.OperationMutate, Table: "Open_vSwitch", Mutations: []ovsdb.Mutation{
			*ovsdb.NewMutation("manager_options", ovsdb.MutateOperationInsert, references("manager")),
		}},
	})
}

// StartDatapath has ovs-vswitchd say what a type of datapath can do, as it does when it starts.
func (o *OVS) StartDatapath(datapath string, capabilities map[string]string) error {
	value, err := ovsdb.NewOvsMap(capabilities)
	if err != nil {
		return err
	}
	datapaths, err := ovsdb.NewOvsMap(map[string]ovsdb.UUID{datapath: {GoUUID: "datapath"}})
	if err != nil {
		return err
	}
	return o.change([]ovsdb.Operation{
		insert("Datapath", "datapath", ovsdb.Row{"capabilities": value}),
		{Op: ovsdb.OperationUpdate, Table: "Open_vSwitch", Row: ovsdb.Row{"datapaths": datapaths}},
	})
}

// Capabilities are what programs read of a type of datapath.
func (o *OVS) Capabilities(datapath string) (map[string]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	roots, err := o.db.List(rows.Database, "Open_vSwitch")
	if err != nil {
		return nil, err
	}
	datapaths, err := o.db.List(rows.Database, "Datapath")
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		if row, ok := datapaths[root.(*rows.OpenVSwitch).Datapaths[datapath]].(*rows.Datapath); ok {
			return maps.Clone(row.Capabilities), nil
		}
	}
	return nil, fmt.Errorf("no datapath of type %s", datapath)
}

// DeletePort takes a port off its bridge, as ovs-vsctl del-port does.
func (o *OVS) DeletePort(bridge, name string) error {
	o.mu.Lock()
	ports, err := o.db.List(rows.Database, "Port", named(name)...)
	o.mu.Unlock()
	if err != nil {
		return err
	}
	var ids []string
	for id := range ports {
		ids = append(ids, id)
	}
	return o.change([]ovsdb.Operation{{
		Op: ovsdb.OperationMutate, Table: "Bridge", Where: named(bridge), Mutations: []ovsdb.Mutation{
			*ovsdb.NewMutation("ports", ovsdb.MutateOperationDelete, references(ids...)),
		},
	}})
}

// change is a transaction of another program.
func (o *OVS) change(ops []ovsdb.Operation) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.execute(ops); err != nil {
		return err
	}
	return o.configure()
}

func insert(table, name string, row ovsdb.Row) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationInsert, Table: table, UUIDName: name, Row: row}
}

func named(name string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}
}

func references(ids ...string) ovsdb.OvsSet {
	list := make([]any, 0, len(ids))
	for _, id := range ids {
		list = append(list, ovsdb.UUID{GoUUID: id})
	}
	return ovsdb.OvsSet{GoSet: list}
}
