// Invalid command lines: a one-line error and its exit status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/program.h"
#include "tests/apps/training.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  const char* name;
  std::string arguments;
  int status;
  std::string message;
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) { return out << refusal.name; }
std::string name_of_refusal(const ::testing::TestParamInfo<Refusal>& info) {
  return info.param.name;
}

const std::string kBench = "allreduce-bench --devices cpu:0,cpu:0 ";

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, PrintsOneLine) {
  const Result result = run_lockstep(GetParam().arguments);
  EXPECT_EQ(result.status, GetParam().status) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("lockstep: error: [" + GetParam().message));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
  EXPECT_EQ(result.output, "");
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, Refused,
    ::testing::Values(
        Refusal{"no_command", "", 2,
                "command line] expected a command of lockstep (`lockstep --help` lists them), got "
                "none"},
        Refusal{"no_command_of_data", "data", 2,
                "command line] expected a command of lockstep data (`lockstep data --help` lists "
                "them), got none"},
        Refusal{"misspelt_command_of_data", "data inspct x", 2,
                "command line] expected an option or command of lockstep data (`lockstep data "
                "--help` lists them), got \"inspct\" (did you mean inspect?)"},
        Refusal{"command_by_another_name", "checkpoint list", 2,
                "command line] expected an option or command of lockstep checkpoint (`lockstep "
                "checkpoint --help` lists them), got \"list\" (did you mean inspect?)"},
        Refusal{"beginning_of_a_command", "eval", 2,
                "command line] expected an option or command of lockstep (`lockstep --help` lists "
                "them), got \"eval\" (did you mean evaluate?)"},
        Refusal{"help_of_a_misspelt_command", "help trian", 2,
                "command line] expected an option or command of lockstep (`lockstep --help` lists "
                "them), got \"trian\" (did you mean train?)"},
        Refusal{"misspelt_command_with_help", "data inspct --help", 2,
                "command line] expected an option or command of lockstep data (`lockstep data "
                "--help` lists them), got \"inspct\" (did you mean inspect?)"},
        Refusal{"command_of_data_alone", "benchmark x.csv", 2,
                "command line] expected an option or command of lockstep (`lockstep --help` lists "
                "them), got \"benchmark\" (did you mean data benchmark?)"},
        Refusal{"gpu_as_an_option", kTrain + "--gpu 0", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"--gpu\" (did you mean --devices?)"},
        Refusal{
            "misspelt_network_with_sizes", "train --model mpl:8" + kData, 2,
            "model] expected one of linear, mlp, cnn, fast_cifar, resnet18, resnet34, resnet50, "
            "resnet101, resnet152, mobilenet_v2, wide_deep, lstm, gpt, bert, minilm, seq2seq, "
            "caption, vit, or a FILE.json, "
            "got \"mpl\" (did you mean mlp?)"},
        Refusal{"nothing_to_inspect", "data inspect", 2,
                "command line] expected files, as `lockstep data inspect --help` describes, got "
                "none"},
        Refusal{"nothing_to_convert", "data convert csv --output x", 2,
                "command line] expected --input, as `lockstep data convert csv --help` describes, "
                "got none"},
        Refusal{"checkpoint_without_its_option", "evaluate runs/img", 2,
                "command line] expected an option or command of lockstep evaluate (`lockstep "
                "evaluate --help` lists them), got \"runs/img\" (did you mean --checkpoint "
                "runs/img?)"},
        Refusal{"data_without_their_option", "data benchmark shapes", 2,
                "command line] expected an option or command of lockstep data benchmark "
                "(`lockstep data benchmark --help` lists them), got \"shapes\" (did you mean "
                "--data shapes?)"},
        Refusal{"network_without_its_option", "train mlp:10", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"mlp:10\" (did you mean --model mlp:10?)"},
        Refusal{"output_without_its_option", "checkpoint export run x.safetensors", 2,
                "command line] expected an option or command of lockstep checkpoint export "
                "(`lockstep checkpoint export --help` lists them), got \"x.safetensors\" (did you "
                "mean --output x.safetensors?)"},
        Refusal{"beginning_of_an_option", kTrain + "--lr-step x", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"--lr-step\" (did you mean --lr-step-every or "
                "--lr-step-factor?)"},
        Refusal{"long_beginning_of_an_option", kTrain + "--optim=sgd", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"--optim\" (did you mean --optimizer?)"},
        Refusal{"number_of_ranks", kTrain + "--nproc 2", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"--nproc\" (ranks are started by mpirun -np N lockstep "
                "train)"},
        Refusal{"number_of_ranks_of_launch", "launch -n 2 -- true", 2,
                "command line] expected an option or command of lockstep launch (`lockstep launch "
                "--help` lists them), got \"-n\" (did you mean --np?)"},
        Refusal{"option_without_a_value", kTrain + "--resume", 2,
                "command line] expected --resume auto|never|require, got the option without a "
                "value"},
        Refusal{"other_name_without_a_value", kTrain + "--lr", 2,
                "command line] expected --lr X, got the option without a value"},
        Refusal{"resume_from_a_directory", kTrain + "--resume runs/img", 2,
                "command line] expected --resume auto, never or require (--checkpoint-dir names "
                "the directory), got \"runs/img\""},
        Refusal{"misspelt_command", "tarin", 2,
                "command line] expected an option or command of lockstep (`lockstep --help` lists "
                "them), got \"tarin\" (did you mean train?)"},
        Refusal{"misspelt_option", "train --modle cnn", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"--modle\" (did you mean --model?)"},
        Refusal{"option_by_another_name", kTrain + "--batch 8", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"--batch\" (did you mean --global-batch?)"},
        Refusal{"workers_of_data", "evaluate --workers=8", 2,
                "command line] expected an option or command of lockstep evaluate (`lockstep "
                "evaluate --help` lists them), got \"--workers\" (did you mean --data-threads?)"},
        Refusal{"profile_in_a_missing_folder",
                kTrain + "--steps 6 --profile /nowhere/profile.jsonl", 3,
                "/nowhere/profile.jsonl] expected to write the file; No such file or directory"},
        Refusal{"profile_over_a_folder", kTrain + "--steps 6 --profile /tmp", 3,
                "/tmp] expected to write the file; Is a directory"},
        Refusal{"profile_of_too_few_steps", kTrain + "--steps 5 --profile /nowhere/profile.jsonl",
                2, "profile] expected more steps than the 5 that are not measured, got 5"},
        Refusal{"files_of_an_unquoted_pattern", "train --model mlp --data /dev/null /dev/zero", 2,
                "command line] expected an option or command of lockstep train (`lockstep train "
                "--help` lists them), got \"/dev/zero\"; quote a pattern, such as --data "
                "'train-*.tfrecord', "},
        Refusal{"without_data", "train --model cnn", 2,
                "command line] expected --data; it was not given"},
        Refusal{"generate_without_checkpoint", "generate --prompt a", 2,
                "command line] expected --checkpoint DIR; it was not given"},
        Refusal{"tokens_by_another_name", "generate --max-new-tokens 5", 2,
                "command line] expected an option or command of lockstep generate (`lockstep "
                "generate --help` lists them), got \"--max-new-tokens\" (did you mean --tokens?)"},
        Refusal{"temperature_below_zero", "generate --checkpoint run --temperature -1", 2,
                "command line] expected --temperature to be at least 0, got -1"},
        Refusal{"top_p_above_one", "generate --checkpoint run --top-p 1.5", 2,
                "command line] expected --top-p to be from 0 to 1, got 1.5"},
        Refusal{"top_k_below_zero", "generate --checkpoint run --top-k -1", 2,
                "command line] expected --top-k to be at least 0, got -1"},
        Refusal{"beams_below_zero", "generate --checkpoint run --beams -1", 2,
                "command line] expected --beams to be at least 0, got -1"},
        Refusal{"beams_and_draws", "generate --checkpoint run --beams 2 --top-k 3", 2,
                "command line] expected --top-k without --beams, got both"},
        Refusal{"penalty_without_beams", "generate --checkpoint run --length-penalty 1", 2,
                "command line] expected --beams with --length-penalty; it was not given"},
        Refusal{"two_kinds_of_sources", "generate --checkpoint run --source-file a --source b", 2,
                "command line] expected --source without --source-file, got both"},
        Refusal{"no_tokens", "generate --checkpoint run --tokens 0", 2,
                "command line] expected --tokens to be at least 1, got 0"},
        Refusal{"without_model", "train" + kData, 2,
                "command line] expected --model NAME or --model FILE.json; it was not given"},
        Refusal{"unknown_model", "train --model mpl" + kData, 2,
                "model] expected one of linear, mlp, cnn, fast_cifar, resnet18, resnet34, "
                "resnet50, resnet101, resnet152, mobilenet_v2, wide_deep, lstm, gpt, bert, minilm, "
                "seq2seq, caption, vit, or a FILE.json, "
                "got \"mpl\""},
        Refusal{"global_batch_that_is_no_number", kTrain + "--global-batch x", 2,
                "command line] expected --global-batch to be a whole number, written in digits, "
                "got \"x\""},
        Refusal{
            "batch_size_that_is_no_number",
            "train --model mlp --data synthetic:8x8x1,4,1003 --batch-size abc", 2,
            "command line] expected --global-batch to be a whole number, written in digits, got "
            "\"abc\""},
        Refusal{"rate_that_is_no_number", kTrain + "--lr=fast", 2,
                "command line] expected --learning-rate to be a number, got \"fast\""},
        Refusal{"flag_with_a_value", kTrain + "--quiet=maybe", 2,
                "command line] expected --quiet to be true or false, got \"maybe\""},
        Refusal{"global_batch_of_0", kTrain + "--global-batch 0", 2,
                "command line] expected --global-batch to be at least 1, got 0"},
        Refusal{"epochs_of_0", kTrain + "--epochs 0", 2,
                "fit] expected a number of epochs or of steps; both are 0"},
        Refusal{"epochs_below_0", kTrain + "--epochs -1", 2,
                "command line] expected --epochs to be at least 0, got -1"},
        Refusal{"steps_below_0", kTrain + "--steps -1", 2,
                "command line] expected --steps to be at least 0, got -1"},
        Refusal{"batch_size_of_0", "train --model mlp --data synthetic:8x8x1,4,1003 --batch-size 0",
                2, "command line] expected --global-batch to be at least 1, got 0"},
        Refusal{"weight_decay_below_0", kTrain + "--weight-decay -0.5", 2,
                "command line] expected --weight-decay to be at least 0, got -0.5"},
        Refusal{"rate_below_0", kTrain + "--lr -1", 2,
                "command line] expected --learning-rate to be at least 0, got -1"},
        Refusal{"infinite_rate", kTrain + "--lr inf", 2,
                "command line] expected --learning-rate to be a number, got \"inf\""},
        Refusal{"warm_up_below_0", kTrain + "--warmup-steps -1", 2,
                "command line] expected --warmup-steps to be at least 0, got -1"},
        Refusal{"profile_to_standard_output", kTrain + "--profile -", 2,
                "command line] expected --profile FILE, such as /dev/stderr for the screen, got "
                "\"-\""},
        Refusal{"metrics_at_no_port", kTrain + "--metrics-port 65536", 2,
                "metrics-port] expected a port from 0 to 65535, or an address such as "
                "0.0.0.0:9400, got \"65536\""},
        Refusal{"metrics_at_an_address_of_another_host", kTrain + "--metrics-port 192.0.2.1:9400",
                2,
                "metrics-port] expected an address of this host and a free TCP port for metrics "
                "(0: any free one), got 192.0.2.1:9400: Cannot assign requested address"},
        Refusal{"metrics_to_standard_output", kTrain + "--metrics-file -", 2,
                "command line] expected --metrics-file FILE, such as lockstep.prom, got \"-\""},
        Refusal{"metrics_in_a_missing_folder", kTrain + "--metrics-file /nowhere/lockstep.prom", 3,
                "/nowhere/lockstep.prom] expected to write the file; No such file or directory"},
        Refusal{"size_of_images", kTrain + "--images 32x32", 2,
                "images] expected none, cifar10, imagenet, imagenet:SIZE, or steps such as "
                "random-crop=160,flip,normalize=imagenet, got \"32x32\""},
        Refusal{"unknown_recipe_for_images", kTrain + "--images cifar", 2,
                "images] expected none, cifar10, imagenet, imagenet:SIZE, or steps such as "
                "random-crop=160,flip,normalize=imagenet, got \"cifar\""},
        Refusal{"unknown_size_for_images", kTrain + "--images imagenet:small", 2,
                "images] expected imagenet:SIZE with a size in pixels, got \"imagenet:small\""},
        Refusal{
            "unknown_step_for_images", kTrain + "--images resize=64,flp", 2,
            "images] expected resize, pad, random-crop, crop, scale, ratio, filter, exif, gray, "
            "flip, color, normalize, cutout or erase, got \"flp\" (did you mean flip?)"},
        Refusal{"size_for_other_images", kTrain + "--image-size 48 --images cifar10", 2,
                "command line] expected --images imagenet, or no --images, with --image-size, got "
                "cifar10"},
        Refusal{"recipe_for_numbers", kTrain + "--images cifar10", 2,
                "images] expected image records; the records of 1003 synthetic samples of 8x8x1 "
                "are not images"},
        Refusal{"accumulate_of_0", kTrain + "--accumulate 0", 2,
                "command line] expected --accumulate to be at least 1, got 0"},
        Refusal{"unknown_scope_of_normalization", kTrain + "--bn global", 2,
                "bn] expected local, sync or group:K with K replicas, 1 or more, got \"global\""},
        Refusal{"groups_that_do_not_divide_the_replicas", kTrain + "--bn group:3 --devices cpu:0",
                2, "bn] expected groups whose size divides the number of replicas, 1, got group:3"},
        Refusal{"group_without_values", kTrain + "--group dense/*", 2,
                "group] expected PATTERN:lr=X,decay=Y, or one of the two, got \"dense/*\""},
        Refusal{"group_with_another_value", kTrain + "--group dense/*:lr=0.1,momentum=2", 2,
                "group] expected lr= or decay= as settings of dense/*, got \"momentum\""},
        Refusal{"group_that_matches_nothing", kTrain + "--group conv*:lr=0.1", 2,
                "group] expected a pattern of parameter names, which are dense_2/kernel, "},
        Refusal{"frozen_pattern_that_matches_nothing", kTrain + "--freeze conv*", 2,
                "freeze] expected a pattern of parameter names, which are dense_2/kernel, "},
        Refusal{
            "momentum_without_sgd", kTrain + "--momentum 0.9", 2,
            "command line] expected --optimizer sgd, lars or rmsprop with --momentum, got adam"},
        Refusal{"nesterov_without_sgd", kTrain + "--optimizer lars --nesterov", 2,
                "command line] expected --optimizer sgd with --nesterov, got lars"},
        Refusal{"trust_coefficient_without_lars",
                kTrain + "--optimizer lamb --trust-coefficient 0.01", 2,
                "command line] expected --optimizer lars with --trust-coefficient, got lamb"},
        Refusal{"trust_coefficient_of_0", kTrain + "--optimizer lars --trust-coefficient 0", 2,
                "lars] expected a trust coefficient above 0, got 0"},
        Refusal{"unknown_loss", kTrain + "--loss hinge", 2,
                "loss] expected sparse-categorical-crossentropy, mean-squared-error, "
                "binary-crossentropy, "
                "categorical-crossentropy, mean-absolute-error or huber, got \"hinge\""},
        Refusal{"unknown_parameter_of_a_loss", kTrain + "--loss huber:beta=2", 2,
                "loss] expected delta= as settings of huber, got \"beta\""},
        Refusal{"parameter_of_a_loss_without", kTrain + "--loss mae:delta=2", 2,
                "loss] expected mae without settings, got \"delta\""},
        Refusal{"parameter_of_a_loss_out_of_range", kTrain + "--loss huber:delta=0", 2,
                "huber] expected delta above 0, got 0"},
        Refusal{"class_weights_that_are_none", kTrain + "--class-weights 1,b", 2,
                "command line] expected --class-weights to be auto or a number for each class, "
                "such as 1,2.5, got \"1,b\""},
        Refusal{"unknown_schedule", kTrain + "--lr-schedule triangle", 2, ""},
        Refusal{"scaled_rate_without_its_batch", kTrain + "--lr-scaling linear", 2,
                "lr-scaling] expected the global batch size that the learning rate refers to "
                "(--lr-base-batch), got 0"},
        Refusal{"misspelt_alias_of_a_loss", kTrain + "--loss mes", 2,
                "loss] expected sparse-categorical-crossentropy, mean-squared-error, "
                "binary-crossentropy, "
                "categorical-crossentropy, mean-absolute-error or huber, got \"mes\" (did you mean "
                "mse?)"},
        Refusal{"label_smoothing_above_1", kTrain + "--label-smoothing 2", 2,
                "command line] expected --label-smoothing to be from 0 to 1, got 2"},
        Refusal{"unknown_precision", kTrain + "--precision bfloat", 2,
                "precision] expected float32, bfloat16 or float16, got \"bfloat\" (did you mean "
                "bfloat16?)"},
        Refusal{"misspelt_alias_of_a_precision", kTrain + "--precision fp61", 2,
                "precision] expected float32, bfloat16 or float16, got \"fp61\" (did you mean "
                "fp16?)"},
        Refusal{"float16_without_a_gpu", kTrain + "--precision float16 --devices cpu:0,cpu:0", 2,
                "precision] expected a GPU for float16, got cpu:0; use bfloat16 or float32"},
        Refusal{"evaluation_in_an_unknown_precision",
                "evaluate --checkpoint nowhere --precision half" + kData, 2,
                "precision] expected float32, bfloat16 or float16, got \"half\""},
        Refusal{"loss_scale_of_0", kTrain + "--loss-scale 0", 2,
                "loss-scale] expected auto, none, dynamic or a number above 0, got \"0\""},
        Refusal{"unknown_fused_statistics", kTrain + "--fused-statistics always", 2,
                "fused-statistics] expected never or measure, got \"always\""},
        Refusal{"unknown_convolutions", kTrain + "--convolutions fused", 2,
                "convolutions] expected auto, graph or legacy, got \"fused\""},
        Refusal{"unknown_recomputation", kTrain + "--recompute block", 2,
                "recompute] expected none or blocks, got \"block\" (did you mean blocks?)"},
        Refusal{"unknown_shard_policy", kTrain + "--shard-policy records", 2,
                "shard-policy] expected auto, file, data or off, got \"records\""},
        Refusal{"skipped_records_without_a_number", kTrain + "--bad-records skip", 2,
                "bad-records] expected fail, or skip:N with N of at least 0, got \"skip\""},
        Refusal{"skipped_records_below_0", kTrain + "--bad-records skip:-1", 2,
                "bad-records] expected fail, or skip:N with N of at least 0, got \"skip:-1\""},
        Refusal{"unknown_strategy", kTrain + "--strategy mirorred", 2,
                "--strategy] expected auto, one-device, mirrored, multi-worker-mirrored or "
                "local-steps, got "
                "\"mirorred\" (did you mean mirrored?)"},
        Refusal{"one_device_with_two", kTrain + "--strategy one-device --devices cpu:0,cpu:0", 2,
                "strategy] expected exactly one device for one-device"},
        Refusal{"ring_without_mpirun", kTrain + "--allreduce ring", 2,
                "--allreduce] expected ranks started by mpirun for ring; this process was started "
                "alone"},
        Refusal{"nccl_without_gpus", kTrain + "--allreduce nccl", 2, ""},
        Refusal{"unknown_device", kTrain + "--devices tpu:0", 2,
                "devices] expected devices such as cpu:0"},
        Refusal{"absent_gpu", kTrain + "--devices gpu:99", 5, "devices] expected gpu:99; "},
        Refusal{"absent_gpu_for_evaluate",
                "evaluate --checkpoint nowhere --data synthetic:8x8x1,4,10 --devices gpu:99", 5,
                "devices] expected gpu:99; "},
        Refusal{"staged_on_the_cpu", kTrain + "--devices cpu:0 --allreduce staged", 2,
                "--allreduce] expected replicas on GPUs for staged (or use auto), got cpu:0"},
        Refusal{"gpu_for_allreduce_bench", "allreduce-bench --devices gpu:99", 5,
                "devices] expected gpu:99; "},
        Refusal{"resume_without_directory", kTrain + "--resume require", 2,
                "command line] expected --checkpoint-dir DIR with --resume require, got none"},
        Refusal{"reset_head_without_weights", kTrain + "--reset-head", 2,
                "command line] expected --init-from with --reset-head; it was not given"},
        Refusal{"partial_without_weights", kTrain + "--partial", 2,
                "command line] expected --init-from with --partial; it was not given"},
        Refusal{"map_of_names_without_a_new_one", kTrain + "--init-from x --map backbone.*", 2,
                "init-from] expected a map of names OLD=NEW, with one * in both or in none, got "
                "\"backbone.*=\""},
        Refusal{"weights_that_are_not_there", kTrain + "--init-from nowhere.safetensors", 3,
                "nowhere.safetensors] "},
        Refusal{"unknown_resume", kTrain + "--resume perhaps --checkpoint-dir x", 2, ""},
        Refusal{"unknown_log_format", kTrain + "--log-format jsn", 2,
                "--log-format] expected text or json, got \"jsn\" (did you mean json?)"},
        Refusal{"misspelt_scope_of_normalization", kTrain + "--bn snyc", 2,
                "bn] expected local, sync or group:K with K replicas, 1 or more, got \"snyc\" (did "
                "you mean sync?)"},
        Refusal{"misspelt_loss_scale", kTrain + "--loss-scale dinamic", 2,
                "loss-scale] expected auto, none, dynamic or a number above 0, got \"dinamic\" "
                "(did you mean dynamic?)"},
        Refusal{"misspelt_device", kTrain + "--devices gpu:al", 2,
                "devices] expected devices such as cpu:0, gpu:1, gpu:all or auto, separated by "
                "commas, got \"gpu:al\" (did you mean gpu:all?)"},
        Refusal{"misspelt_compression", "data convert idx --input . --output . --compression gzp",
                2, "compression] expected none, gzip or zlib, got \"gzp\" (did you mean gzip?)"},
        Refusal{"data_of_a_command_with_files", "data inspect --data a.tfrecord", 2,
                "command line] expected an option or command of lockstep data inspect (`lockstep "
                "data inspect --help` lists them), got \"--data\" (lockstep data inspect takes "
                "files without an option)"},
        Refusal{"model_of_an_evaluation", "evaluate --model cnn", 2,
                "command line] expected --checkpoint DIR; it was not given"},
        Refusal{"two_names_of_the_rate", kTrain + "--lr 0.1 --learning-rate=0.01", 2,
                "command line] expected --learning-rate or --lr, two names of the same option, got "
                "both"},
        Refusal{"two_names_of_the_batch", kTrain + "--batch-size 8", 2,
                "command line] expected --global-batch or --batch-size, two names of the same "
                "option, got both"},
        Refusal{"epochs_in_words", kTrain + "--epochs two", 2,
                "command line] expected --epochs to be a whole number, written in digits, got "
                "\"two\""},
        Refusal{"epochs_with_an_exponent", kTrain + "--epochs 1e2", 2,
                "command line] expected --epochs to be a whole number, written in digits, got "
                "\"1e2\""},
        Refusal{"seed_below_0", kTrain + "--seed -1", 2,
                "command line] expected --seed to be a whole number from 0 to 2^64 - 1, got "
                "\"-1\""},
        Refusal{"table_without_its_prefix", "train --model mlp --data churn.csv", 2,
                "churn.csv] expected csv: before the name of the file: csv:churn.csv, got "
                "the name of a .csv file"},
        Refusal{"validation_table_without_its_prefix", kTrain + "--validation-data churn.csv", 2,
                "churn.csv] expected csv: before the name of the file: "
                "csv:churn.csv, got the name of a .csv file"},
        Refusal{"table_to_inspect_without_its_prefix", "data inspect churn.csv", 2,
                "churn.csv] expected csv: before the name of the file: csv:churn.csv, got "
                "the name of a .csv file"},
        Refusal{"feature_of_other_data", kTrain + "--label-feature y", 2,
                "synthetic:8x8x1,4,1003] expected TFRecord files with --input-feature or "
                "--label-feature "},
        Refusal{"features_of_other_data", kTrain + "--features f.json", 2,
                "synthetic:8x8x1,4,1003] expected a table, csv:FILE, with --features, got "},
        Refusal{"scale_of_a_table", "train --model mlp --data csv:t.csv:scale=standart", 2,
                "csv:t.csv:scale=standart: scale] expected none, standard or minmax, got "
                "\"standart\" (did you mean standard?)"},
        Refusal{"moments_of_sgd", kTrain + "--optimizer sgd --beta1 0.8", 2,
                "command line] expected --optimizer adam, adamw or lamb with --beta1, got sgd"},
        Refusal{"final_rate_of_a_constant_schedule", kTrain + "--lr-final 0.1", 2,
                "command line] expected --lr-schedule cosine, linear or polynomial with "
                "--lr-final, got "
                "constant"},
        Refusal{"power_of_another_schedule", kTrain + "--lr-power 2", 2,
                "command line] expected --lr-schedule polynomial with --lr-power, got constant"},
        Refusal{"reductions_of_another_schedule", kTrain + "--lr-schedule cosine --lr-step-every 3",
                2,
                "command line] expected --lr-schedule step or exponential with --lr-step-every, "
                "got cosine"},
        Refusal{"base_batch_without_scaling", kTrain + "--lr-base-batch 64", 2,
                "command line] expected --lr-scaling linear or sqrt with --lr-base-batch, got "
                "none"},
        Refusal{"misspelt_metric", kTrain + "--metrics f1,conf", 2,
                "metrics] expected accuracy, top5, precision, recall, f1, auc, auc_pr, confusion, "
                "perplexity, mae, mse, rmse or r2, got \"conf\" (did you mean confusion?)"},
        Refusal{"metric_of_values_for_classes", kTrain + "--metrics mae", 2,
                "metrics] expected a loss of values, such as mse, with mae, got "
                "cross-entropy"},
        Refusal{"label_smoothing_of_a_regression", kTrain + "--loss mse --label-smoothing 0.1", 2,
                "command line] expected a cross-entropy as --loss with --label-smoothing, got "
                "mean-squared-error"},
        Refusal{"early_stop_without_a_metric", kTrain + "--early-stop :patience=3", 2,
                "--early-stop] expected METRIC, or METRIC:OPTIONS, such as validation_loss, got "
                "\":patience=3\""},
        Refusal{"early_stop_with_a_misspelt_key", kTrain + "--early-stop loss:patence=3", 2,
                "--early-stop] expected max, min, patience= or min_delta= as settings of loss, got "
                "\"patence\" (did you mean patience?)"},
        Refusal{"early_stop_after_half_an_epoch", kTrain + "--early-stop loss:patience=0.5", 2,
                "--early-stop] expected patience to be a whole number of at least 1, got "
                "\"patience=0.5\""},
        Refusal{"early_stop_on_a_misspelt_metric", kTrain + "--early-stop acuracy", 2,
                "early-stop] expected loss or accuracy, got \"acuracy\" (did you mean accuracy?)"},
        Refusal{"more_epochs_than_can_be_counted", kTrain + "--epochs 99999999999999999999", 2,
                "command line] expected --epochs to be a whole number, written in digits, got "
                "\"99999999999999999999\""},
        Refusal{"plateau_without_validation", kTrain + "--reduce-on-plateau validation_loss", 2,
                "reduce-on-plateau] expected validation data for validation_loss; there are none"},
        Refusal{"plateau_that_increases", kTrain + "--reduce-on-plateau loss:factor=2", 2,
                "--reduce-on-plateau] expected factor to be above 0 and below 1, got \"factor=2\""},
        Refusal{"histograms_without_a_directory", kTrain + "--histograms 10", 2,
                "command line] expected --summary-dir with --histograms; it was not given"},
        Refusal{"prediction_images_without_a_directory", kTrain + "--prediction-images 10", 2,
                "command line] expected --summary-dir with --prediction-images; it was not given"},
        Refusal{"validate_every_without_data", kTrain + "--validate-every 10", 2,
                "command line] expected --validation-data or --validation-split with "
                "--validate-every; it was not given"},
        Refusal{"keep_best_without_directory", kTrain + "--keep-best loss", 2,
                "command line] expected --checkpoint-dir DIR with --keep-best, got none"},
        Refusal{"save_every_without_directory", kTrain + "--save-every 10", 2,
                "command line] expected --checkpoint-dir DIR with --save-every, got none"},
        Refusal{"overwrite_without_resume_never", kTrain + "--overwrite --checkpoint-dir x", 2,
                "command line] expected --resume never with --overwrite, got auto"},
        Refusal{"overwrite_of_nothing", kTrain + "--overwrite --resume never", 2,
                "command line] expected --checkpoint-dir DIR with --overwrite, got none"},
        Refusal{"strategy_of_tf_distribute", kTrain + "--strategy tpu", 2,
                "--strategy] expected mirrored for the processors or GPUs of one host, "
                "multi-worker-mirrored for those of several; TPUs are not supported, got \"tpu\""},
        Refusal{"absent_data_set", "train --model mlp --data fashion_mnist", 2,
                "fashion_mnist] expected "},
        Refusal{"absent_records", "train --model mlp --data nowhere/*.tfrecord", 3, ""},
        Refusal{"absent_table", "train --model mlp --data csv:nowhere.csv", 3, ""},
        Refusal{"image_too_small_for_the_model", "train --model cnn --data synthetic:4x4x1,4,100",
                2, ""},
        Refusal{
            "absent_network_file", "train --model nowhere.json" + kData, 2,
            "model] expected the name of a network or a JSON file that can be read; nowhere.json: "
            "No such file or directory"},
        Refusal{"absent_script", "train --model nowhere.pt" + kData, 2,
                "model] expected a TorchScript file that can be read; nowhere.pt: No such file or "
                "directory"},
        Refusal{"checkpoint_directory_that_cannot_be", kTrain + "--checkpoint-dir /proc/lockstep",
                3, "/proc/lockstep] expected a directory for checkpoints that can be written"},
        Refusal{"summary_directory_that_cannot_be", kTrain + "--summary-dir /proc/lockstep", 3,
                "/proc/lockstep"},
        Refusal{"validation_data_of_another_shape",
                kTrain + "--validation-data synthetic:8x9x1,4,100", 3,
                "100 synthetic samples of 8x9x1] expected samples of shape [8, 8, 1]"},
        Refusal{"evaluate_without_checkpoint", "evaluate --data synthetic:8x8x1,4,10", 2,
                "command line] expected --checkpoint DIR; it was not given"},
        Refusal{"evaluate_absent_checkpoint",
                "evaluate --checkpoint nowhere --data synthetic:8x8x1,4,10", 3,
                "nowhere] expected a directory with a complete checkpoint; it does not exist"},
        Refusal{"predict_without_output",
                "predict --checkpoint nowhere --data synthetic:8x8x1,4,10", 2,
                "command line] expected --output FILE.csv, FILE.jsonl or FILE.tfrecord; it was not "
                "given"},
        Refusal{"predict_into_another_format",
                "predict --checkpoint nowhere --data synthetic:8x8x1,4,10 --output p.txt", 2,
                "command line] expected --output to end in .csv, .jsonl or .tfrecord, or to be -, "
                "or --format, got \"p.txt\""},
        Refusal{"quantize_without_output",
                "quantize --checkpoint nowhere --data synthetic:8x8x1,4,10", 2,
                "command line] expected --output FILE.onnx; it was not given"},
        Refusal{"quantize_into_no_folder",
                "quantize --checkpoint nowhere --data synthetic:8x8x1,4,10 --output "
                "/nowhere/q.onnx",
                3, "/nowhere/q.onnx] expected a file in a folder; /nowhere is none"},
        Refusal{
            "quantize_with_an_unknown_calibration",
            "quantize --checkpoint nowhere --data synthetic:8x8x1,4,10 --output q.onnx "
            "--calibration minmax",
            2,
            "calibration] expected min-max, percentile or entropy, got \"minmax\" (did you mean "
            "min-max?)"},
        Refusal{"quantize_with_few_samples",
                "quantize --checkpoint nowhere --data synthetic:8x8x1,4,10 --output q.onnx "
                "--samples 3",
                2, "command line] expected --samples to be at least 16, got 3"},
        Refusal{"export_to_another_format", "checkpoint export nowhere --output w.h5", 2,
                "command line] expected --output to end in .safetensors, .onnx, .pt or .pth, or "
                "--format, got \"w.h5\""},
        Refusal{"fold_for_another_format", "checkpoint export nowhere --output w.pt --no-fold", 2,
                "command line] expected --no-fold only for the format onnx, got torch"},
        Refusal{"float16_for_another_format",
                "checkpoint export nowhere --output w.pt --weights float16", 2,
                "command line] expected --weights float16 only for the format onnx, got torch"},
        Refusal{"layout_of_another_format",
                "checkpoint export nowhere --output w --format torch --layout triton", 2,
                "command line] expected --layout triton only for the format onnx, got torch"},
        Refusal{"report_of_nothing", "report", 2,
                "command line] expected RUN, as `lockstep report --help` describes, got none"},
        Refusal{"report_with_a_price_that_is_none", "report x --price 1,y", 2,
                "--price] expected prices from 0 to 1e9, separated by commas, got \"1,y\""},
        Refusal{"report_with_a_target_that_is_none", "report x --target loss=small", 2,
                "--target] expected METRIC or METRIC=X with a number X, got \"loss=small\""},
        Refusal{"allreduce_bench_one_replica", "allreduce-bench", 2,
                "allreduce-bench] expected at least two replicas: mpirun -np 2, or --devices "
                "cpu:0,cpu:0, got one"},
        Refusal{"allreduce_bench_ring_alone", kBench + "--allreduce ring", 2,
                "--allreduce] expected ranks started by mpirun for ring; this process was started "
                "alone"},
        Refusal{"allreduce_bench_mpi_alone", kBench + "--allreduce in-process,mpi", 2,
                "--allreduce] expected ranks started by mpirun for mpi; this process was started "
                "alone"},
        Refusal{"allreduce_bench_unknown_route", kBench + "--allreduce auto,tree", 2,
                "--allreduce] expected auto, "},
        Refusal{"allreduce_bench_no_route", kBench + "--allreduce auto,", 2,
                "--allreduce] expected auto, "},
        Refusal{"allreduce_bench_unknown_dtype", kBench + "--dtype float3", 2,
                "--dtype] expected float32, "},
        Refusal{"allreduce_bench_factor_of_1", kBench + "--factor 1", 2,
                "command line] expected --factor to be at least 2, got 1"},
        Refusal{"allreduce_bench_size_of_0", kBench + "--min-bytes 0", 2,
                "command line] expected --min-bytes to be at least 1, got 0"},
        Refusal{"allreduce_bench_size_that_is_none", kBench + "--max-bytes many", 2,
                "command line] expected --max-bytes to be a number of bytes, such as 65536 or "
                "64KiB, got \"many\""},
        Refusal{"allreduce_bench_sizes_the_wrong_way_round",
                kBench + "--min-bytes 1MiB --max-bytes 1KiB", 2,
                "command line] expected --max-bytes to be at least --min-bytes, 1048576, got 1024"},
        Refusal{"allreduce_bench_size_beyond_int", kBench + "--max-bytes 4GiB", 2,
                "command line] expected --max-bytes to be from 1 to 2147483647, got 4294967296"},
        Refusal{"allreduce_bench_iterations_below_0", kBench + "--iterations -1", 2,
                "command line] expected --iterations to be at least 0, got -1"},
        Refusal{
            "allreduce_bench_misspelt_option", kBench + "--chek", 2,
            "command line] expected an option or command of lockstep allreduce-bench (`lockstep "
            "allreduce-bench --help` lists them), got \"--chek\" (did you mean --check?)"},
        Refusal{"absent_configuration", "train --config nowhere.toml", 2,
                "--config nowhere.toml] expected a readable file of name=value lines; "},
        Refusal{"configuration_in_yaml", "train --config c.yaml", 2,
                "--config c.yaml] expected a file of name=value lines, as --print-config "
                "writes it, got the name of a YAML file"},
        Refusal{"configuration_of_a_command_without", "evaluate --config nowhere.toml", 2,
                "command line] expected an option or command of lockstep evaluate"},
        Refusal{"doctor_measures_too_long", "doctor --seconds 90", 2,
                "command line] expected --seconds to be from 1 to 30, got 90"},
        Refusal{"doctor_quick_and_slow", "doctor --quick --seconds 20", 2,
                "command line] expected --seconds without --quick, got both"},
        Refusal{"doctor_unknown_route", "doctor --allreduce pigeon", 2,
                "--allreduce] expected auto, "},
        Refusal{"doctor_misspelt_data", "doctor --quick --data fashon-mnist", 2,
                "fashon-mnist] expected "}),
    name_of_refusal);

TEST(BadCommandLine, KnowsNamesOfOtherPrograms) {
  const std::string validated = kTrain + "--validation-data synthetic:8x8x1,4,100 ";
  for (const auto& [arguments, hint] : std::vector<std::pair<std::string, std::string>>{
           {kTrain + "--max_epochs 5", "\"--max_epochs\" (did you mean --epochs?)"},
           {kTrain + "--patience 5",
            "\"--patience\" (did you mean --early-stop METRIC:patience=N?)"},
           {kTrain + "--early-stopping",
            "\"--early-stopping\" (did you mean --early-stop METRIC:patience=N?)"},
           {kTrain + "--imgsz 640", "\"--imgsz\" (did you mean --image-size?)"},
           {kTrain + "--lr0 0.01", "\"--lr0\" (did you mean --learning-rate?)"},
           {kTrain + "--accumulate-grad-batches 4",
            "\"--accumulate-grad-batches\" (did you mean --accumulate, which divides "
            "--global-batch into micro-batches: multiply that for a larger batch?)"},
           {kTrain + "--accelerator gpu",
            "\"--accelerator\" (did you mean --devices, such as gpu:all or cpu:0?)"},
           {kTrain + "--dropout 0.2", "\"--dropout\" (did you mean --model NAME:dropout=P?)"},
           {kTrain + "-e 5", "\"-e\" (did you mean --epochs?)"},
           {kTrain + "-b 5",
            "\"-b\" (did you mean --global-batch, the number of samples of a step over all "
            "replicas?)"},
           {kTrain + "--test-data x",
            "\"--test-data\" (did you mean --validation-data, by which the best epoch is "
            "selected; lockstep evaluate --data measures on others?)"},
           {"evaluate --test-data x", "\"--test-data\" (did you mean --data?)"},
           {kTrain + "--precision 16-mixed", "\"16-mixed\" (did you mean float16?)"},
           {kTrain + "--loss CrossEntropyLoss",
            "\"CrossEntropyLoss\" (did you mean sparse-categorical-crossentropy?)"},
           {kTrain + "--early-stop val_loss",
            "expected validation data for val_loss; there are none"},
           {validated + "--early-stop val_loss", "\"val_loss\" (did you mean validation_loss?)"},
           {"train model=mlp --data synthetic:8x8x1,4,10",
            "\"model=mlp\" (did you mean --model mlp?)"}}) {
    const Result result = run_lockstep(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_THAT(result.errors, HasSubstr(hint));
  }
}

TEST(BadCommandLine, ListsOptimizers) {
  struct Case {
    const char* options;
    const char* expected;
    const char* got;
  };
  const char* const all = "[--optimizer] expected sgd, adam, adamw, lars";
  for (const Case& wrong :
       {Case{"--optimizer lamp", all, ", got \"lamp\" (did you mean lamb?)\n"},
        Case{"--optimizer AdamW", all, ", got \"AdamW\" (did you mean adamw?)\n"},
        Case{"--optimizer sgd --epsilon 1e-3",
             "[command line] expected --optimizer adam, adamw, lars",
             " with --epsilon, got sgd\n"}}) {
    const Result result = run_lockstep(kTrain + wrong.options);
    EXPECT_EQ(result.status, 2) << wrong.options;
    EXPECT_THAT(result.errors, HasSubstr(wrong.expected));
    EXPECT_THAT(result.errors, ::testing::EndsWith(wrong.got));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
