// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol between the CNI plugin and the agent: an HTTP request with a JSON
// body over a unix socket for each CNI command.
package wire

// DefaultSocket is where the agent listens if its configuration does not say otherwise.
const DefaultSocket = "/run/coelan/cni.sock"

// Paths of the request. The method is POST. Path is that of pods' interfaces, IPAMPath that of
// addresses for interfaces that other plugins make.
const (
	Path     = "/v1/cni"
	IPAMPath = "/v1/ipam"
)

// Header is set, to Version, on every answer that the agent's CNI server gives, so that
// the plugin can tell it from that of anything else on the socket.
const (
	Header  = "Coelan-Cni"
	Version = "1"
)

// MaxRequest is the size in bytes above which a request is refused.
const MaxRequest = 4 << 20

// Request is one call of the plugin: its environment and standard input.
type Request struct {
	Command     string `json:"command"`               // CNI_COMMAND
	ContainerID string `json:"containerID,omitempty"` // CNI_CONTAINERID
	Netns       string `json:"netns,omitempty"`       // CNI_NETNS
	IfName      string `json:"ifName,omitempty"`      // CNI_IFNAME
	Args        string `json:"args,omitempty"`        // CNI_ARGS
	// Config is standard input as it came: it may be anything.
	Config []byte `json:"config,omitempty"`
	// TimeoutMillis is how long the plugin waits for the answer.
	TimeoutMillis int64 `json:"timeoutMillis,omitempty"`
	// Addresses is what the IPAM plugin of the configuration printed, for an ADD.
	Addresses []byte `json:"addresses,omitempty"`
	// Delegates says that the caller calls IPAM plugins: an ADD that needs addresses of one is
	// answered with CodeAddresses.
	Delegates bool `json:"delegates,omitempty"`
}

// The answer to a command that succeeded has status 200, and its body is what the plugin
// prints, which may be nothing. Any other status has an error in the form of the CNI
// specification (section "Error") as its body.

// Error is that form.
type Error struct {
	CNIVersion string `json:"cniVersion"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// Codes of the CNI specification that are used.
const (
	CodeIncompatibleVersion = 1
	CodeUnsupportedField    = 2
	CodeUnknownContainer    = 3
	CodeInvalidEnvironment  = 4
	CodeIO                  = 5
	CodeDecoding            = 6
	CodeInvalidConfig       = 7
	CodeInvalidNetns        = 8
	CodeTryAgainLater       = 11
	CodeNotAvailable        = 50
	CodeLimited             = 51
	// From 100 on, codes are the plugin's own.
	CodeExhausted = 100 // no address or port number is left on the node
	CodeFailed    = 101 // the network could not be set up; the message says where
	CodeCheck     = 102 // CHECK found a difference
	CodeRefused   = 103 // the pod cannot have the Network, address or interface that it asks for
	// CodeAddresses is no failure: the caller is to call the IPAM plugin of the configuration, and
	// to ask again with what that printed. Runtimes see it only if the plugin is older than the
	// agent.
	CodeAddresses = 104
)

// LatestVersion of the CNI specification that is spoken.
const LatestVersion = "1.1.0"

// Versions of the CNI specification that results can be given in. The first is that of
// configurations that name none, such as those of ovs-odl.
var Versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", LatestVersion}
