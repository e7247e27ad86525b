// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
)

// The CNI commands that reach the agent.
const (
	cmdAdd    = "ADD"
	cmdDel    = "DEL"
	cmdCheck  = "CHECK"
	cmdGC     = "GC"
	cmdStatus = "STATUS"
)

// since says which version of the specification has a command.
var since = map[string]string{cmdAdd: "0.1.0", cmdDel: "0.1.0", cmdCheck: "0.4.0", cmdGC: "1.1.0", cmdStatus: "1.1.0"}

// call is a request that is well-formed.
type call struct {
	command string
	key     attachment.Key // not of GC and STATUS
	netns   string         // of ADD and CHECK
	pod     podArgs
	conf    netConf
	asked   // of ADD
}

// subject names what the call is about, for messages.
func (c call) subject() string {
	switch {
	case c.key.ContainerID == "":
		return "network " + c.conf.Name
	case c.pod.name == "":
		return "container " + c.key.String()
	default:
		return fmt.Sprintf("pod %s (container %s)", c.pod, c.key)
	}
}

// podArgs are the pairs in CNI_ARGS that Kubernetes runtimes give.
type podArgs struct {
	namespace, name, uid string
	asked                addressArgs // IP and MAC, which not only Kubernetes' give
}

func (p podArgs) complete() bool { return p.namespace != "" && p.name != "" && p.uid != "" }

func (p podArgs) String() string {
	if p.name == "" {
		return ""
	}
	return p.namespace + "/" + p.name
}

// parse checks all of a request. What it can tell about the pod it returns also with an
// error, so that the error can be told to the pod's user.
func (s *Server) parse(r wire.Request) (call, []string, error) {
	c := call{command: r.Command, netns: r.Netns,
		key: attachment.Key{ContainerID: r.ContainerID, IfName: r.IfName}}
	from, known := since[r.Command]
	if !known {
		return c, nil, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_COMMAND %q is not known", r.Command), "")
	}
	if r.Command != cmdGC && r.Command != cmdStatus {
		argsErr := c.pod.parse(r)
		if err := checkEnvironment(r); err != nil {
			return c, nil, err
		}
		if argsErr != nil && r.Command != cmdDel {
			return c, nil, argsErr
		}
	}
	conf, warnings, err := s.parseConfig(r.Config, r.Command != cmdDel && r.Command != cmdGC)
	c.conf = conf
	if err != nil {
		return c, nil, err
	}
	if ok, err := version.GreaterThanOrEqualTo(conf.CNIVersion, from); err != nil || !ok {
		return c, nil, newError(wire.CodeIncompatibleVersion,
			fmt.Sprintf("cniVersion %s in the network configuration has no %s, %s has", conf.CNIVersion, r.Command, from), "")
	}
	if r.Command == cmdAdd {
		err = c.asked.read(conf, c.pod)
	}
	return c, warnings, err
}

// checkEnvironment checks the variables of ADD, DEL and CHECK.
func checkEnvironment(r wire.Request) error {
	var missing []string
	if r.ContainerID == "" {
		missing = append(missing, "CNI_CONTAINERID")
	}
	if r.IfName == "" {
		missing = append(missing, "CNI_IFNAME")
	}
	if r.Netns == "" && r.Command != cmdDel {
		missing = append(missing, "CNI_NETNS")
	}
	if len(missing) > 0 {
		return newError(wire.CodeInvalidEnvironment, "not set: "+strings.Join(missing, ", "), "")
	}
	if err := utils.ValidateContainerID(r.ContainerID); err != nil {
		return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_CONTAINERID %q", r.ContainerID), err.Msg)
	}
	if err := utils.ValidateInterfaceName(r.IfName); err != nil {
		return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_IFNAME %q", r.IfName), err.Msg+" "+err.Details)
	}
	return nil
}

// podField is what names, namespaces and UIDs may be made of. It keeps what is built
// from them, such as namespace/name/interface, unambiguous.
var podField = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// parse reads CNI_ARGS: KEY=VALUE, separated by semicolons. All three pairs of the pod
// must be there for ADD.
func (p *podArgs) parse(r wire.Request) error {
	ignoreUnknown, unknown := false, ""
	for pair := range strings.SplitSeq(r.Args, ";") {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case pair == "":
		case !ok:
			return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_ARGS %q", r.Args), fmt.Sprintf("%q is not KEY=VALUE", pair))
		case key == "K8S_POD_NAMESPACE":
			p.namespace = value
		case key == "K8S_POD_NAME":
			p.name = value
		case key == "K8S_POD_UID":
			p.uid = value
		case key == "K8S_POD_INFRA_CONTAINER_ID":
		case key == "IP" && value != "":
			p.asked.IPs = strings.Split(value, ",")
		case key == "MAC":
			p.asked.MAC = value
		case key == "IP":
		case key == "IgnoreUnknown":
			ignoreUnknown = value == "1" || strings.EqualFold(value, "true")
		default:
			unknown = key
		}
	}
	if unknown != "" && !ignoreUnknown {
		return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_ARGS has the unknown key %s", unknown), "IgnoreUnknown is not set")
	}
	return p.check(r.Command == cmdAdd)
}

func (p *podArgs) check(required bool) error {
	for _, pair := range []struct{ key, value string }{
		{"K8S_POD_NAMESPACE", p.namespace}, {"K8S_POD_NAME", p.name}, {"K8S_POD_UID", p.uid},
	} {
		switch {
		case pair.value == "" && required:
			return newError(wire.CodeInvalidEnvironment, "CNI_ARGS lacks "+pair.key,
				"the runtime must pass the pod's namespace, name and UID")
		case pair.value == "":
		case len(pair.value) > 253 || !podField.MatchString(pair.value):
			return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("%s %q in CNI_ARGS", pair.key, pair.value),
				"is not a name that Kubernetes allows")
		}
	}
	return nil
}
